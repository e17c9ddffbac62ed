// Serves fauxqs on a free port of loopback until its standard input ends.
import { buildApp } from "fauxqs";

const app = buildApp({ logger: false });
console.log(await app.listen({ host: "127.0.0.1", port: 0 }));
process.stdin.resume().on("end", () => process.exit());
