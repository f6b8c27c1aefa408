package graphql

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	graphqlgo "github.com/graph-gophers/graphql-go"
	graphqlerrors "github.com/graph-gophers/graphql-go/errors"
	"golang.org/x/sync/semaphore"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// operate runs an operation of a connection until it ends. It returns the last message of the
// operation.
func (s *socket) operate(ctx context.Context, id string, op *operationRequest) frame {
	if err := s.access.check(ctx); err != nil {
		s.endIfRevoked(err)
		return s.failure(id, queryErrors(failed(err)))
	}
	doc, err := readDocument(op.Query)
	if err != nil {
		return s.failure(id, queryErrors(err))
	}
	if doc.subscribes(op.OperationName) {
		return s.follow(ctx, id, op)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// Acquire the slot of the connection first, so that a connection with many waiting queries does
	// not hold a shared slot.
	for _, places := range []*semaphore.Weighted{s.queries, s.answering} {
		if err := places.Acquire(ctx, 1); err != nil {
			return s.failure(id, queryErrors(failed(serving.Error(ctx, err))))
		}
		defer places.Release(1)
	}
	ctx, lists := withDeferred(ctx)
	started := time.Now()
	response := s.execute(ctx, op)
	observe(started, response)
	if response.Data == nil {
		return s.failure(id, response.Errors)
	}
	answer, err := s.encodeData(id, response)
	var message bytes.Buffer
	if err == nil {
		err = lists.lists.Write(&message, answer)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot encode a GraphQL response")
		return s.failure(id, []*graphqlerrors.QueryError{graphqlerrors.Errorf("internal error")})
	}
	s.sendRaw(message.Bytes())
	return frame{ID: id, Type: operationComplete}
}

// encodeData encodes a message with a response to an operation.
func (s *socket) encodeData(id string, response *graphqlgo.Response) ([]byte, error) {
	payload, err := json.Marshal(response)
	if err != nil {
		return nil, err
	}
	message := frame{ID: id, Type: operationData, Payload: payload}
	if s.connection.Subprotocol() == formerProtocol {
		message.Type = formerData
	}
	return json.Marshal(message)
}

// follow runs a subscription.
func (s *socket) follow(ctx context.Context, id string, op *operationRequest) frame {
	ctx, end := withEnding(ctx)
	ctx, cancel := context.WithCancel(ctx)
	responses, err := s.schema.Subscribe(ctx, op.Query, op.OperationName, op.Variables)
	if err != nil {
		cancel()
		return s.failure(id, queryErrors(err))
	}
	// The executor closes the channel after ctx has ended.
	defer func() {
		cancel()
		for range responses {
			continue
		}
	}()
	for one := range responses {
		response, ok := one.(*graphqlgo.Response)
		if !ok {
			continue
		}
		if len(response.Errors) > 0 {
			return s.failure(id, someErrors(response.Errors))
		}
		answer, err := s.encodeData(id, response)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot encode a GraphQL event")
			return s.failure(id, []*graphqlerrors.QueryError{graphqlerrors.Errorf("internal error")})
		}
		s.sendRaw(answer)
	}
	if err := end.Load(); err != nil {
		return s.failure(id, queryErrors(*err))
	}
	return frame{ID: id, Type: operationComplete}
}

// failure returns the message that ends an operation with errors.
func (s *socket) failure(id string, errs []*graphqlerrors.QueryError) frame {
	data, err := json.Marshal(errs)
	if err != nil {
		data = []byte(`[{"message":"internal error"}]`)
	}
	return frame{ID: id, Type: operationError, Payload: data}
}
