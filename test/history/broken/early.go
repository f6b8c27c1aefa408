package broken

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	kvMethods = "/etcdserverpb.KV/"
	// storeAfter is the time after which an acknowledged write is stored, if no other request comes first.
	storeAfter = 50 * time.Millisecond
	// killAfter is the number of writes after which the process ends with one that is not stored.
	killAfter = 100
	// answerTime is the time for the acknowledgement of this write to reach the client.
	answerTime = 2 * time.Second
)

// early is a proxy of etcd that acknowledges a write before it stores it. Its other answers are those of etcd:
// it stores the write before the next request.
type early struct {
	etcd *grpc.ClientConn

	mu sync.Mutex
	// pending is a write that is acknowledged and not stored.
	pending      *etcdserverpb.TxnRequest
	acknowledged int
	// ending is true while the process waits for its end.
	ending bool
}

// acknowledgeEarly starts the proxy, and returns its endpoint and a function that stops it.
func acknowledgeEarly(servers []string) (endpoint string, stop func(), err error) {
	if len(servers) != 1 {
		return "", nil, fmt.Errorf("--etcd-servers must be one endpoint, not %q", servers)
	}
	connection, err := grpc.NewClient(servers[0], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "early-")
	if err != nil {
		return "", nil, err
	}
	socket := filepath.Join(dir, "etcd")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return "", nil, err
	}
	e := &early{etcd: connection}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(e.handle))
	go func() { _ = server.Serve(listener) }()
	return "unix://" + socket, func() {
		server.Stop()
		_ = connection.Close()
		_ = os.RemoveAll(dir)
	}, nil
}

func (e *early) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if !strings.HasPrefix(method, kvMethods) {
		return e.forward(method, stream, nil)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ending {
		return status.Error(codes.Unavailable, "the process ends")
	}
	if err := e.store(stream.Context()); err != nil {
		return err
	}
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if method == kvMethods+"Txn" {
		txn := &etcdserverpb.TxnRequest{}
		if err := proto.Unmarshal(request, txn); err != nil {
			return err
		}
		answer, err := e.acknowledge(stream.Context(), txn)
		if err != nil {
			return err
		}
		if answer != nil {
			return e.answer(stream, txn, answer)
		}
	}
	return e.forward(method, stream, request)
}

// acknowledge returns the answer to a conditional write of one object whose condition is met, or nil for
// any other transaction.
func (e *early) acknowledge(ctx context.Context, txn *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if len(txn.Compare) != 1 || len(txn.Success) != 1 || txn.Compare[0].Target != etcdserverpb.Compare_MOD || !bytes.Contains(txn.Compare[0].Key, []byte("/"+resource+"/")) {
		return nil, nil
	}
	current := &etcdserverpb.RangeResponse{}
	if err := e.call(ctx, "Range", &etcdserverpb.RangeRequest{Key: txn.Compare[0].Key}, current); err != nil {
		return nil, err
	}
	var revision int64
	if len(current.Kvs) > 0 {
		revision = current.Kvs[0].ModRevision
	}
	if revision != txn.Compare[0].GetModRevision() {
		return nil, nil
	}
	// All writes pass this proxy, one at a time, so that the revision is known.
	header := current.Header
	header.Revision++
	answer := &etcdserverpb.TxnResponse{Header: header, Succeeded: true}
	if txn.Success[0].GetRequestPut() != nil {
		answer.Responses = []*etcdserverpb.ResponseOp{{Response: &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{Header: header}}}}
	} else {
		answer.Responses = []*etcdserverpb.ResponseOp{{Response: &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &etcdserverpb.DeleteRangeResponse{Header: header, Deleted: 1}}}}
	}
	return answer, nil
}

// answer acknowledges a write that is stored later. The caller holds mu.
func (e *early) answer(stream grpc.ServerStream, txn *etcdserverpb.TxnRequest, answer *etcdserverpb.TxnResponse) error {
	data, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&data); err != nil {
		return err
	}
	e.pending = txn
	if e.acknowledged++; e.acknowledged == killAfter {
		e.ending = true
		time.AfterFunc(answerTime, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		return nil
	}
	time.AfterFunc(storeAfter, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.pending == txn && !e.ending {
			_ = e.store(context.Background())
		}
	})
	return nil
}

// store stores the pending write. The caller holds mu.
func (e *early) store(ctx context.Context) error {
	if e.pending == nil {
		return nil
	}
	answer := &etcdserverpb.TxnResponse{}
	if err := e.call(context.WithoutCancel(ctx), "Txn", e.pending, answer); err != nil {
		return err
	}
	e.pending = nil
	return nil
}

// call calls a method of etcd.
func (e *early) call(ctx context.Context, method string, request, answer proto.Message) error {
	data, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	var received []byte
	if err := e.etcd.Invoke(ctx, kvMethods+method, &data, &received); err != nil {
		return err
	}
	return proto.Unmarshal(received, answer)
}

// forward forwards the messages of a call. first is a message that is already received, or nil.
func (e *early) forward(method string, stream grpc.ServerStream, first []byte) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	if incoming, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, incoming.Copy())
	}
	etcd, err := e.etcd.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if first != nil {
		if err := etcd.SendMsg(&first); err != nil {
			return err
		}
	}
	go func() {
		for {
			var message []byte
			err := stream.RecvMsg(&message)
			if errors.Is(err, io.EOF) {
				_ = etcd.CloseSend()
				return
			}
			if err != nil || etcd.SendMsg(&message) != nil {
				cancel()
				return
			}
		}
	}()
	for {
		var message []byte
		err := etcd.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

// raw is the codec of messages as they are on the wire.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = bytes.Clone(data)
	return nil
}
