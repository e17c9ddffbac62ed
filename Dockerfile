FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /pgrelay ./cmd/pgrelay

# Nothing but the program and the certificates by which it knows AWS.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /pgrelay /pgrelay
# A number, because Kubernetes can't tell whether a name is root (runAsNonRoot).
USER 65532:65532
# The exec form: SIGTERM reaches pgrelay, which drains.
ENTRYPOINT ["/pgrelay"]
CMD ["run", "--config", "/etc/pgrelay/pgrelay.yaml"]
