# The image is one static binary that `make image` has built before with the
# local Go, for the architecture that it is going to run on:
#
#   CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags "-s -w" -o bin/nodeagent ./cmd/nodeagent
#   docker build -t ghcr.io/nodeagent-io/nodeagent .      (or podman build, buildah bud)
#
# So the build needs no network and no base image, and the tests and the image
# run the same code. .dockerignore lets nothing else in.
FROM scratch
LABEL org.opencontainers.image.title="nodeagent" \
      org.opencontainers.image.description="Says on a pod why it is stuck Terminating" \
      org.opencontainers.image.source="https://github.com/nodeagent-io/nodeagent" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY bin/nodeagent /nodeagent
# Root, because what it reads of other processes is root's.
USER 0:0
EXPOSE 9732
ENTRYPOINT ["/nodeagent"]
CMD ["run"]
