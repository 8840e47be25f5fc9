# Two images, each with one static program that runs as an unprivileged user.
FROM golang:1.26.8 AS build
WORKDIR /src
COPY . .
# .git is not copied, so pass the revision: docker build --build-arg REVISION=$(git rev-parse HEAD) .
ARG REVISION
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.revision=${REVISION}" -o /out/ ./cmd/stock ./loadtest
RUN mkdir /reports

# distroless has no tags for versions.
FROM gcr.io/distroless/static-debian12:nonroot AS loadtest
COPY --from=build /out/loadtest /loadtest
# A new volume takes the owner of its mount point. The lab writes each report to a directory below it.
COPY --from=build --chown=65532:65532 /reports /out
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/loadtest"]

FROM gcr.io/distroless/static-debian12:nonroot AS stock
COPY --from=build /out/stock /stock
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/stock"]
CMD ["serve"]
HEALTHCHECK --interval=2s --timeout=2s CMD ["/stock", "healthcheck"]
