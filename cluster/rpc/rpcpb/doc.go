// Package rpcpb is the protobuf form of what nodes say over gRPC, generated
// from peer.proto: messages and stubs, and nothing that acts on them.
package rpcpb

//go:generate protoc -I . --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative peer.proto
