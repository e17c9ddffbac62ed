"""Serves mail with aiosmtpd on a free port of loopback until its standard input ends.

Its first line says where; each further one is a mail, as Python's own parser takes it apart.
Arguments: none, starttls or tls; the mechanism of AUTH or ""; username; password; certificate; key.
"""
import asyncio
import base64
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

mode, mechanism, username, password, certificate, key = sys.argv[1:]


class Handler:
    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        parts = [
            {
                "media": part.get_content_type(),
                "method": part.get_param("method") or "",
                "file": part.get_filename() or "",
                "body": base64.b64encode(part.get_payload(decode=True)).decode(),
            }
            for part in mail.walk()
            if not part.is_multipart()
        ]
        defects = [str(d) for part in mail.walk() for d in part.defects]
        defects += [str(d) for value in mail.values() for d in value.defects]
        line = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "options": envelope.mail_options,
            "subject": mail["subject"],
            "headers": {name: str(value) for name, value in mail.items()},
            "names": [a.display_name for a in mail["to"].addresses],
            "parts": parts,
            "defects": defects,
            "longest": max(map(len, envelope.original_content.split(b"\r\n"))),
            "user": session.auth_data.decode() if session.auth_data else "",
            "tls": session.ssl is not None or mode == "tls",
        }
        print(json.dumps(line), flush=True)
        return "250 2.0.0 kept"


def authenticate(server, session, envelope, name, data):
    ok = (data.login.decode(), data.password.decode()) == (username, password)
    return AuthResult(success=ok, handled=False, auth_data=data.login)


def context():
    if mode == "none":
        return None
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate, key)
    return made


def session():
    return SMTP(
        Handler(),
        enable_SMTPUTF8=True,
        tls_context=context() if mode == "starttls" else None,
        require_starttls=mode == "starttls",
        auth_required=bool(mechanism),
        auth_require_tls=mode == "starttls",
        auth_exclude_mechanism=[m for m in ("PLAIN", "LOGIN") if m != mechanism],
        authenticator=authenticate,
    )


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(session, "127.0.0.1", 0, ssl=context() if mode == "tls" else None)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
