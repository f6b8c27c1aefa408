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

	// maxBody bounds the body of a request. The largest requests contain a policy document.
	maxBody = 1 << 20
	// maxCalls bounds the memory for the recorded calls of a long-running server.
	maxCalls = 200_000
)

// TrustPrincipals determines which principals of a trust policy must exist when it is
// written.
type TrustPrincipals string

const (
	// ExistInKnownAccounts requires the principals of the server's accounts to exist.
	ExistInKnownAccounts TrustPrincipals = ""
	// ExistAlways requires all principals to exist, as AWS does.
	ExistAlways TrustPrincipals = "Always"
	// NeedNotExist accepts any principal.
	NeedNotExist TrustPrincipals = "NeedNotExist"
)

// Options are the options of a Server. The zero value is useful.
type Options struct {
	// Addr is the listen address; 127.0.0.1:0 if empty.
	Addr string
	// StateFile is the file that keeps the state over restarts, if set. It contains secrets.
	StateFile string
	// Region is the region in Env. The default is the region of IAM in the account's partition.
	Region string
	// TrustPrincipals determines which principals of trust policies must exist.
	TrustPrincipals TrustPrincipals
	// UnseenByEKS is the number of calls of CreateAccessEntry that do not find a new role:
	// AWS is eventually consistent.
	UnseenByEKS int
	// Clock defaults to the real clock.
	Clock clock.PassiveClock
}

// Server simulates AWS. It is safe for concurrent use.
type Server struct {
	options  Options
	clock    clock.PassiveClock
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	// configFile is an empty configuration of the SDKs.
	configFile string

	servingMu sync.Mutex
	closed    bool
	serving   sync.WaitGroup // the listener and every request

	mu      sync.Mutex
	state   *state
	awsAuth map[string]func() (*ConfigMapData, error) // by cluster ARN
	// sessionLimit is the maximum duration of a session, or 0 for no limit.
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
		// Serve returns after Close, which returns the error.
		_ = s.http.Serve(listener)
	})
	return s, nil
}

// emptyConfig writes a configuration with an empty profile.
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

// Close stops the server, ends delayed calls and returns when all requests have ended.
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

// URL returns the endpoint of all services.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Env returns the environment variables, as KEY=value, with which the SDKs and the aws command
// line use this server only, as the owner of the key. With an empty key, the credentials come
// from other variables, such as AWS_WEB_IDENTITY_TOKEN_FILE.
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
		// The endpoint of a service takes precedence over the general one.
		"AWS_ENDPOINT_URL_IAM=" + s.URL(),
		"AWS_ENDPOINT_URL_STS=" + s.URL(),
		"AWS_ENDPOINT_URL_EKS=" + s.URL(),
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=false",
		"AWS_USE_FIPS_ENDPOINT=false",
		"AWS_USE_DUALSTACK_ENDPOINT=false",
		"AWS_EC2_METADATA_DISABLED=true",
		// Some SDKs reject an empty profile name.
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
		// A role in the environment must not replace the key.
		env = append(env, "AWS_ROLE_ARN=", "AWS_WEB_IDENTITY_TOKEN_FILE=")
	}
	return env
}

// apiError is an error response.
type apiError struct {
	Code, Message string
	Status        int
	// Fields are additional members of an EKS error.
	Fields map[string]string
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func errorf(status int, code, format string, args ...any) *apiError {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...), Status: status}
}

// request is a call in progress.
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
	// prepared is the result of operation.prepare.
	prepared any
}

// permission is an action on a resource.
type permission struct{ action, resource string }

// operation is an operation of a service.
type operation struct {
	// unsigned operations need no signature.
	unsigned bool
	// required are the members, by their names on the wire, that the request must have.
	// Members that are elements of the path are not listed.
	required []string
	// invalid is the error code for a required member of EKS that is missing;
	// InvalidParameterException if empty.
	invalid string
	// resource returns the ARN on which the caller needs permission. Nil requires no permission.
	resource func(s *Server, r *request) string
	// alsoNeeds returns additional permissions that the request requires, if not nil.
	alsoNeeds func(r *request) []permission
	// prepare runs without s.mu, and may block.
	prepare func(s *Server, r *request) *apiError
	// run executes the operation and returns the response: a node of XML, or a value to
	// encode as JSON. It runs with s.mu held.
	run func(s *Server, r *request) (any, *apiError)
	// writes is set if the operation changes the state.
	writes bool
}

// begin adds a request to serving, or returns false if the server is closed.
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
// http.ErrAbortHandler to close the connection.
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

// execute runs the operation and records the call, in one order for all calls.
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
		// The user or role may have changed while the call waited.
		if r.caller, e = s.principalOf(r.key, r.now); e != nil {
			return nil, r.spell(e)
		}
		if e = s.authorize(r); e != nil {
			return nil, e
		}
	}
	answer, e = r.op.run(s, r)
	if r.op.writes {
		// A rejected call can change the state as well: UnseenByEKS of a role.
		if err := s.save(); err != nil {
			return nil, errorf(http.StatusInternalServerError, serverErrorCode(r.service, http.StatusInternalServerError), "%v", err)
		}
	}
	return answer, e
}
