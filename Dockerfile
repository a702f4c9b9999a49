# Both images are of one Debian release, because the commands use its C library.
FROM golang:1.26-trixie AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -o /out/ ./cmd/server ./cmd/mqclient ./cmd/mqvalidate
RUN mkdir /out/data

FROM debian:trixie-slim
COPY --from=build /out/server /out/mqclient /out/mqvalidate /usr/local/bin/
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
EXPOSE 9092
VOLUME /data
ENTRYPOINT ["server"]
CMD ["-addr", ":9092", "-data", "/data"]
