package main

import (
	"context"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// echo is the server, stream and file of the loop in bare_echo.go.
type echo struct {
	server *grpc.Server
	served chan struct{}
	client *grpc.ClientConn
	cancel context.CancelFunc
	stream grpc.ClientStream
	file   *os.File
	pos    int64
	back   []byte
}

func openEcho(path string) (e *echo, err error) {
	e = &echo{served: make(chan struct{}), cancel: func() {}, server: grpc.NewServer(grpc.ForceServerCodecV2(raw{}))}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	desc := grpc.StreamDesc{StreamName: "Trip", Handler: answer, ServerStreams: true, ClientStreams: true}
	e.server.RegisterService(&grpc.ServiceDesc{ServiceName: "Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		close(e.served)
		return nil, err
	}
	go func() {
		defer close(e.served)
		_ = e.server.Serve(l) // ends with Stop
	}()
	if e.file, err = os.Create(path); err != nil {
		return nil, err
	}
	if e.client, err = grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	if e.stream, err = e.client.NewStream(ctx, &desc, "/Echo/Trip", grpc.ForceCodecV2(raw{})); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *echo) close() {
	e.cancel()
	if e.client != nil {
		e.client.Close()
	}
	e.server.Stop()
	<-e.served
	if e.file != nil {
		e.file.Close()
	}
}
