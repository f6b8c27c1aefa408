package fakeaws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	serviceIAM = "iam"
	serviceSTS = "sts"
	serviceEKS = "eks"

	// maxBody bounds a request; the largest thing in one is a policy document.
	maxBody = 1 << 20
	// maxCalls bounds the memory for calls of a server that runs for long.
	maxCalls = 200_000
)

// TrustPrincipals says which principals of trust policies must exist when the policy is
// written.
type TrustPrincipals string

const (
	// ExistInKnownAccounts wants those to exist whose account the server knows.
	ExistInKnownAccounts TrustPrincipals = ""
	// ExistAlways wants all of them to exist, as AWS does.
	ExistAlways TrustPrincipals = "Always"
	// NeedNotExist takes any.
	NeedNotExist TrustPrincipals = "NeedNotExist"
)

// Options are the options of a Server. The zero value is useful.
type Options struct {
	// Addr is where to listen; 127.0.0.1:0 if empty.
	Addr string
	// StateFile keeps the state over restarts, if set. It has secrets in it.
	StateFile string
	// Region is what Env says; the one of IAM in the account's partition if empty.
	Region string
	// TrustPrincipals says which principals of trust policies must exist.
	TrustPrincipals TrustPrincipals
	// UnseenByEKS is how many calls of CreateAccessEntry do not see a role after it was
	// made, since AWS is eventually consistent.
	UnseenByEKS int
	// Clock is the real one if nil.
	Clock clock.PassiveClock
}

// Server speaks for AWS. It is safe for concurrent use.
type Server struct {
	options  Options
	clock    clock.PassiveClock
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	// configFile is a configuration of the SDKs that says nothing.
	configFile string

	servingMu sync.Mutex
	closed    bool
	serving   sync.WaitGroup // the listener and every request

	mu      sync.Mutex
	state   *state
	awsAuth map[string]func() (*ConfigMapData, error) // by cluster ARN
	// sessionLimit is how long a session lasts at most; 0 is as long as it asks for.
	sessionLimit time.Duration

	callsMu sync.Mutex
	calls   []Call
	faults  func(Call) Fault
}

// New starts a server, which runs until Close.
func New(options Options) (*Server, error) {
	if options.Region != "" && partitionOf(options.Region) == "" {
		return nil, fmt.Errorf("unknown region %q", options.Region)
	}
	st, err := loadState(options.StateFile)
	if err != nil {
		return nil, err
	}
	configFile, err := emptyConfig()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", cmp.Or(options.Addr, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", errors.Join(err, os.Remove(configFile)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		options: options, clock: options.Clock, listener: listener, cancel: cancel,
		configFile: configFile, state: st, awsAuth: map[string]func() (*ConfigMapData, error){},
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	s.serving.Go(func() {
		// It ends by Close only, whose error it returns.
		_ = s.http.Serve(listener)
	})
	return s, nil
}

// emptyConfig writes a configuration with a profile and nothing in it.
func emptyConfig() (string, error) {
	f, err := os.CreateTemp("", "fakeaws-*.config")
	if err != nil {
		return "", fmt.Errorf("making a configuration: %w", err)
	}
	_, err = f.WriteString("[default]\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("making a configuration: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return f.Name(), nil
}

// Close stops the server, ends delayed calls and returns once all is stopped.
func (s *Server) Close() error {
	s.servingMu.Lock()
	first := !s.closed
	s.closed = true
	s.servingMu.Unlock()
	if !first {
		s.serving.Wait()
		return nil
	}
	s.cancel()
	err := s.http.Close()
	s.serving.Wait()
	if err = errors.Join(err, os.Remove(s.configFile)); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	return nil
}

// URL is the endpoint of every service.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Env returns the environment, as KEY=value, in which the SDKs and the aws command line
// talk with this server only, as the owner of the key. An empty key leaves the
// credentials to others, such as AWS_WEB_IDENTITY_TOKEN_FILE.
func (s *Server) Env(key AccessKey) []string {
	region := s.options.Region
	s.mu.Lock()
	if a := s.state.Accounts[key.AccountID]; a != nil && partitionOf(region) != a.Partition {
		region = globalRegions[a.Partition]
	}
	s.mu.Unlock()
	region = cmp.Or(region, globalRegions["aws"])
	env := []string{
		"AWS_REGION=" + region,
		"AWS_DEFAULT_REGION=" + region,
		"AWS_ENDPOINT_URL=" + s.URL(),
		// Those of a service would win over the one of all.
		"AWS_ENDPOINT_URL_IAM=" + s.URL(),
		"AWS_ENDPOINT_URL_STS=" + s.URL(),
		"AWS_ENDPOINT_URL_EKS=" + s.URL(),
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=false",
		"AWS_USE_FIPS_ENDPOINT=false",
		"AWS_USE_DUALSTACK_ENDPOINT=false",
		"AWS_EC2_METADATA_DISABLED=true",
		// An empty profile is one that does not exist, to some SDKs.
		"AWS_PROFILE=default",
		"AWS_CONFIG_FILE=" + s.configFile,
		"AWS_SHARED_CREDENTIALS_FILE=" + s.configFile,
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI=",
		"AWS_ACCESS_KEY_ID=" + key.ID,
		"AWS_SECRET_ACCESS_KEY=" + key.Secret,
		"AWS_SESSION_TOKEN=" + key.SessionToken,
	}
	if key.ID != "" {
		// A role of the environment is not to be taken instead of the key.
		env = append(env, "AWS_ROLE_ARN=", "AWS_WEB_IDENTITY_TOKEN_FILE=")
	}
	return env
}

// apiError is an error as it is on the wire.
type apiError struct {
	Code, Message string
	Status        int
	// Fields are further members of an error of EKS.
	Fields map[string]string
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func errorf(status int, code, format string, args ...any) *apiError {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...), Status: status}
}

// request is a call while it is served.
type request struct {
	http    *http.Request
	body    []byte
	id      string
	now     time.Time
	service string
	op      *operation
	name    string            // of the operation
	params  map[string]string // of the Query protocol, or the path and query of EKS
	input   eksInput
	key     *credential // nil without a signature
	region  string
	caller  *principal
	// prepared is what the operation found out before it got the lock.
	prepared any
}

// permission is that for an action on a resource.
type permission struct{ action, resource string }

// operation is something that a service can do.
type operation struct {
	// unsigned operations need no signature.
	unsigned bool
	// required are the members, by their names on the wire, that the request must have.
	// Members that are elements of the path are not listed.
	required []string
	// invalid is the error code for a required member of EKS that is missing;
	// InvalidParameterException if empty.
	invalid string
	// resource is the ARN that the caller needs permission for; nil for none.
	resource func(s *Server, r *request) string
	// alsoNeeds are further permissions that the request takes, if not nil.
	alsoNeeds func(r *request) []permission
	// prepare runs without the lock, and may wait.
	prepare func(s *Server, r *request) *apiError
	// run takes effect; it returns the answer: a node of XML, or what becomes JSON. It
	// runs with s.mu held.
	run func(s *Server, r *request) (any, *apiError)
	// writes says that the state changes.
	writes bool
}

// begin counts a request in, unless the server is closed.
func (s *Server) begin() bool {
	s.servingMu.Lock()
	defer s.servingMu.Unlock()
	if s.closed {
		return false
	}
	s.serving.Add(1)
	return true
}

func (s *Server) serve(w http.ResponseWriter, hr *http.Request) {
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.serving.Done()
	if cluster, ok := strings.CutPrefix(hr.URL.Path, tokenReviewPath); ok {
		s.serveTokenReview(w, hr, cluster)
		return
	}
	r := &request{http: hr, id: requestID(), now: s.clock.Now()}
	protocol := s.protocolOf(hr)
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
	if err != nil {
		protocol.fail(w, r, errorf(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "reading the request: %v", err))
		return
	}
	r.body = body
	if e := protocol.decode(r); e != nil {
		s.record(Call{Service: r.service, Operation: r.name, Parameters: r.parameters(), ErrorCode: e.Code})
		protocol.fail(w, r, e)
		return
	}
	answer, e := s.call(r)
	if e != nil {
		protocol.fail(w, r, e)
		return
	}
	protocol.answer(w, r, answer)
}

// call checks, delays and executes a request. It ends the goroutine with
// http.ErrAbortHandler if the connection is to be cut.
func (s *Server) call(r *request) (any, *apiError) {
	call := Call{Service: r.service, Operation: r.name, Parameters: r.parameters()}
	refuse := func(e *apiError) (any, *apiError) {
		call.ErrorCode = e.Code
		s.record(call)
		return nil, e
	}
	if !r.op.unsigned {
		if e := s.authenticate(r); e != nil {
			return refuse(e)
		}
		call.Account, call.Caller = r.caller.AccountID, r.caller.ARN
	}
	fault := s.faultFor(call)
	call.Fault = fault.Kind
	if !fault.wait(r.http.Context()) || fault.Kind == RequestLost {
		call.Fault = RequestLost
		s.record(call)
		panic(http.ErrAbortHandler)
	}
	if e := fault.answer(r.service); e != nil {
		return refuse(e)
	}
	if e := r.missing(); e != nil {
		return refuse(e)
	}
	if r.op.prepare != nil {
		if e := r.op.prepare(s, r); e != nil {
			return refuse(e)
		}
	}
	answer, e := s.execute(r, call)
	if fault.Kind == ResponseLost {
		panic(http.ErrAbortHandler)
	}
	return answer, e
}

// execute runs the operation and notes the call, in one order for all calls.
func (s *Server) execute(r *request, call Call) (answer any, e *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if e != nil {
			call.ErrorCode = e.Code
		}
		s.record(call)
	}()
	if !r.op.unsigned {
		// While the call waited, its session may have ended.
		if r.caller, e = s.principalOf(r.key, r.now); e != nil {
			return nil, r.spell(e)
		}
		if e = s.authorize(r); e != nil {
			return nil, e
		}
	}
	answer, e = r.op.run(s, r)
	if r.op.writes {
		// Also a refused call may count: that of a role EKS does not see yet.
		if err := s.save(); err != nil {
			return nil, errorf(http.StatusInternalServerError, serverErrorCode(r.service, http.StatusInternalServerError), "%v", err)
		}
	}
	return answer, e
}
