package graphql

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	graphqlgo "github.com/graph-gophers/graphql-go"
	graphqlerrors "github.com/graph-gophers/graphql-go/errors"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

// operate runs an operation of a connection until it ends. It returns the message that ends it.
func (s *socket) operate(ctx context.Context, id string, asked *operationRequest) frame {
	if err := s.access.check(ctx); err != nil {
		s.endIfRevoked(err)
		return s.failure(id, queryErrors(failed(err)))
	}
	doc, err := readDocument(asked.Query)
	if err != nil {
		return s.failure(id, queryErrors(err))
	}
	if doc.subscribes(asked.OperationName) {
		return s.follow(ctx, id, asked)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// That of the connection comes first, so that one with many queries keeps no place of all waiting.
	for _, places := range []semaphore{s.queries, s.answering} {
		if err := places.acquire(ctx); err != nil {
			return s.failure(id, queryErrors(failed(terms.Error(ctx, err))))
		}
		defer places.release()
	}
	ctx, lists := withDeferred(ctx)
	started := time.Now()
	response := s.execute(ctx, asked)
	observe(started, response)
	if response.Data == nil {
		return s.failure(id, response.Errors)
	}
	answer, err := envelope(response)
	var message bytes.Buffer
	if err == nil {
		message.Write(s.head(id))
		if err = lists.write(&message, answer); err == nil {
			message.WriteByte('}')
			s.sendRaw(message.Bytes())
			return frame{ID: id, Type: operationComplete}
		}
	}
	klog.FromContext(ctx).Error(err, "encoding a GraphQL answer")
	return s.failure(id, []*graphqlerrors.QueryError{graphqlerrors.Errorf("internal error")})
}

// head is the begin of a message with data, up to its payload.
func (s *socket) head(id string) []byte {
	out := append([]byte{}, `{"id":`...)
	out = appendText(out, id)
	out = append(out, `,"type":"`...)
	out = append(out, s.data...)
	return append(out, `","payload":`...)
}

// follow runs a subscription.
func (s *socket) follow(ctx context.Context, id string, asked *operationRequest) frame {
	ctx, end := withEnding(ctx)
	ctx, cancel := context.WithCancel(ctx)
	responses, err := s.schema.Subscribe(ctx, asked.Query, asked.OperationName, asked.Variables)
	if err != nil {
		cancel()
		return s.failure(id, queryErrors(err))
	}
	// The executor closes the channel once ctx has ended; what is in between is for nobody.
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
		answer, err := envelope(response)
		if err != nil {
			klog.FromContext(ctx).Error(err, "encoding a GraphQL event")
			return s.failure(id, []*graphqlerrors.QueryError{graphqlerrors.Errorf("internal error")})
		}
		s.sendRaw(append(append(s.head(id), answer...), '}'))
	}
	if err := end.get(); err != nil {
		return s.failure(id, queryErrors(err))
	}
	return frame{ID: id, Type: operationComplete}
}

// failure is the message that ends an operation with errors.
func (s *socket) failure(id string, errs []*graphqlerrors.QueryError) frame {
	var payload any = errs
	if !s.strict {
		payload = errs[0]
	}
	data, err := json.Marshal(payload)
	if err != nil {
		data = []byte(`{"message":"internal error"}`)
		if s.strict {
			data = []byte(`[{"message":"internal error"}]`)
		}
	}
	return frame{ID: id, Type: operationError, Payload: data}
}
