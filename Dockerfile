FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /out/ ./cmd/server ./cmd/mqclient ./cmd/mqvalidate
RUN mkdir /out/data

FROM scratch
COPY --from=build /out/server /out/mqclient /out/mqvalidate /
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
EXPOSE 9092
VOLUME /data
ENTRYPOINT ["/server"]
CMD ["-addr", ":9092", "-data", "/data"]
