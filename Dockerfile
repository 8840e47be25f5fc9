# Two static programs on an image that has nothing else, run by a user who owns nothing.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
# The revision is passed, as .git stays out of the image:   docker build --build-arg REVISION=$(git rev-parse HEAD) .
ARG REVISION
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.revision=${REVISION}" -o /out/ ./cmd/stock ./loadtest
RUN mkdir /reports

FROM gcr.io/distroless/static-debian12:nonroot AS loadtest
COPY --from=build /out/loadtest /loadtest
# A new volume takes the owner of what it is mounted on. The lab writes to out/ and the time.
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
