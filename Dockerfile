# The server in a container, as an ordinary user. docs/guides/operations.md says what confinement needs of the container.

FROM docker.io/library/rust:1.90-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package countersign-cli

FROM docker.io/library/debian:bookworm-slim
# The programs that commands may use are yours to add: build from this image, and name them in the policy.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 countersign \
 && useradd --uid 10001 --gid 10001 --create-home --shell /usr/sbin/nologin countersign \
 && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/countersign \
 && install --directory --owner=10001 --group=10001 --mode=0755 /workspace
COPY --from=build /src/target/release/countersign /usr/local/bin/countersign
USER 10001:10001
# A folder below the volume: one that a volume brings is open to others.
ENV COUNTERSIGN_STATE_DIR=/var/lib/countersign/state
WORKDIR /workspace
VOLUME ["/var/lib/countersign", "/workspace"]
EXPOSE 7420
# Answered on loopback, whatever else is listened on; a server with TLS needs another check.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7420 && printf 'GET /healthz HTTP/1.1\\r\\nHost: 127.0.0.1:7420\\r\\nConnection: close\\r\\n\\r\\n' >&3 && head --lines=1 <&3 | grep --quiet ' 200 '"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["countersign"]
CMD ["serve"]
