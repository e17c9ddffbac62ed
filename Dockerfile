# docker build -t pgrelay --build-arg VERSION=$(git describe --tags --always) .
# docker build -t pgrelay-sqs --target sqs .     the in-memory SQS of deploy/compose.yaml
#
# The build runs on the builder's own architecture and compiles for the image's.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH

FROM source AS build-sqs
RUN go build -trimpath -ldflags "-s -w" -o /out/sqsd ./internal/sqstest/sqsd

FROM scratch AS sqs
COPY --from=build-sqs /out/sqsd /sqsd
USER 65532:65532
EXPOSE 9324
ENTRYPOINT ["/sqsd", "-addr", "0.0.0.0:9324"]

FROM source AS build
ARG VERSION=devel
# timetzdata: the image has no zones, and TZ would be taken for UTC without a word.
RUN go build -trimpath -tags timetzdata -ldflags "-s -w -X main.version=$VERSION" -o /out/pgrelay ./cmd/pgrelay

# Nothing but the program and the certificates by which it knows AWS and mail servers.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/pgrelay /pgrelay
# Where pgrelay.yaml is expected, so that `docker run pgrelay check` finds it as `run` does.
WORKDIR /etc/pgrelay
# A number, because Kubernetes can't tell whether a name is root (runAsNonRoot).
USER 65532:65532
EXPOSE 9187
# The exec form: SIGTERM reaches pgrelay, which drains.
ENTRYPOINT ["/pgrelay"]
CMD ["run"]
