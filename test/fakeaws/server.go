package fakeaws

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	serviceIAM = "iam"
	serviceSTS = "sts"
	serviceEKS = "eks"

	// maxBody bounds the body of a request. The largest requests contain a policy document.
	maxBody = 1 << 20

	withWebIdentity = "AssumeRoleWithWebIdentity"
)

// globalRegions are the regions of IAM by partition.
var globalRegions = map[string]string{"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}

// Options are the options of a Server. The zero value is useful.
type Options struct {
	// StateFile is the file that keeps the state over restarts, if set. It contains secrets.
	StateFile string
	// Region is the region in Env. The default is the region of IAM in the account's partition.
	Region string
	// UnseenByEKS is the number of calls of CreateAccessEntry that do not find a new role:
	// AWS is eventually consistent.
	UnseenByEKS int
}

// Server simulates AWS. It is safe for concurrent use.
type Server struct {
	options Options
	http    *httptest.Server
	cancel  context.CancelFunc

	mu    sync.Mutex
	state *state
	// awsAuth are the readers of aws-auth by cluster ARN, and verifiers those of tokens by provider ARN.
	awsAuth   map[string]func() (string, error)
	verifiers map[string]TokenVerifier
	// sessionLimit is the maximum duration of a session, or 0 for no limit.
	sessionLimit time.Duration
	calls        []Call
	faults       func(Call) Fault
}

// New starts a server, which runs until Close.
func New(options Options) (*Server, error) {
	st, err := loadState(options.StateFile)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		options: options, cancel: cancel, state: st,
		awsAuth: map[string]func() (string, error){}, verifiers: map[string]TokenVerifier{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", s.serveQuery)
	mux.HandleFunc("POST "+tokenReviewPath+"{cluster...}", s.serveTokenReview)
	mux.HandleFunc("/", func(w http.ResponseWriter, hr *http.Request) {
		failJSON(w, errorf("UnknownOperationException", "%s %s is not supported by this server", hr.Method, hr.URL.Path))
	})
	for pattern, operation := range eksOperations {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, hr *http.Request) { s.serveEKS(w, hr, operation.name, operation.run) })
	}
	s.http = httptest.NewUnstartedServer(mux)
	s.http.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.http.Start()
	return s, nil
}

// Close stops the server, ends delayed calls and returns when all requests have ended.
func (s *Server) Close() error {
	s.cancel()
	s.http.Close()
	return nil
}

// URL returns the endpoint of all services.
func (s *Server) URL() string { return s.http.URL }

// Env returns the environment variables, as KEY=value, with which the SDKs and the aws command
// line use this server only, as the owner of the key. With an empty key, the credentials come
// from other variables, such as AWS_WEB_IDENTITY_TOKEN_FILE.
func (s *Server) Env(key AccessKey) []string {
	partition := "aws"
	s.mu.Lock()
	if a := s.state.Accounts[key.AccountID]; a != nil {
		partition = a.Partition
	}
	s.mu.Unlock()
	region := cmp.Or(s.options.Region, globalRegions[partition])
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
		"AWS_PROFILE=",
		"AWS_CONFIG_FILE=" + os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
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
	code, message string
	status        int
	// injected errors have the code that the fault names.
	injected bool
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

// statuses are the HTTP statuses of errors that are not 400.
var statuses = map[string]int{
	"AccessDenied": http.StatusForbidden, "ExpiredToken": http.StatusForbidden, "InvalidClientTokenId": http.StatusForbidden,
	"MissingAuthenticationToken": http.StatusForbidden, "SignatureDoesNotMatch": http.StatusForbidden,
	"NoSuchEntity": http.StatusNotFound, "ResourceNotFoundException": http.StatusNotFound, "NotFoundException": http.StatusNotFound,
	"UnknownOperationException": http.StatusNotFound,
	"EntityAlreadyExists":       http.StatusConflict, "ResourceInUseException": http.StatusConflict, "DeleteConflict": http.StatusConflict,
	"LimitExceeded": http.StatusConflict, "InternalFailure": http.StatusInternalServerError,
}

func errorf(code, format string, args ...any) *apiError {
	return &apiError{code: code, message: fmt.Sprintf(format, args...), status: cmp.Or(statuses[code], http.StatusBadRequest)}
}

func validationError(format string, args ...any) *apiError {
	return errorf("ValidationError", "1 validation error detected: "+format, args...)
}

// eksCodes are the error codes of EKS for errors that all services have.
var eksCodes = map[string]string{
	"SignatureDoesNotMatch": "InvalidSignatureException", "InvalidClientTokenId": "UnrecognizedClientException",
	"MissingAuthenticationToken": "MissingAuthenticationTokenException", "ExpiredToken": "ExpiredTokenException",
	"AccessDenied": "AccessDeniedException", "InternalFailure": "ServerException", "Throttling": "ThrottlingException",
	"ServiceUnavailable": "ServiceUnavailableException",
}

// response returns an error of an operation as the service returns it.
func (c *call) response(err error) *apiError {
	var e *apiError
	if !errors.As(err, &e) {
		e = errorf("InternalFailure", "%v", err)
	}
	if code := eksCodes[e.code]; code != "" && c.Service == serviceEKS && !e.injected {
		return &apiError{code: code, message: e.message, status: e.status}
	}
	return e
}

// call is a call in progress.
type call struct {
	Call
	http   *http.Request
	body   []byte
	now    time.Time
	key    *credential // nil without a signature
	caller *principal
	region string
	// identity is the identity in a verified token.
	identity *webIdentity
}

// operation executes a call. The result is marshaled in XML for IAM and STS, in JSON for EKS. It
// runs with s.mu held.
type operation func(s *Server, c *call) (result any, err error)

// queryOperations are the operations of IAM and STS, by the version of the API and the name.
var queryOperations = map[string]map[string]operation{"2010-05-08": iamOperations, "2011-06-15": stsOperations}

// serveQuery serves IAM and STS: form parameters, and responses in XML.
func (s *Server) serveQuery(w http.ResponseWriter, hr *http.Request) {
	c := &call{http: hr, now: time.Now(), Call: Call{Service: serviceSTS, Parameters: map[string]string{}}}
	result, err := func() (any, error) {
		var err error
		if c.body, err = io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody)); err != nil {
			return nil, validationError("%v", err)
		}
		form, err := url.ParseQuery(hr.URL.RawQuery + "&" + string(c.body))
		if err != nil {
			return nil, errorf("MalformedQueryString", "%v", err)
		}
		for name, values := range form {
			if !strings.HasPrefix(name, "X-Amz-") {
				c.Parameters[name] = strings.Join(values, ",")
			}
		}
		version := c.Parameters["Version"]
		c.Operation = c.Parameters["Action"]
		delete(c.Parameters, "Version")
		delete(c.Parameters, "Action")
		run := queryOperations[version][c.Operation]
		if run == nil {
			return nil, errorf("InvalidAction", "%s of version %s is not supported by this server", c.Operation, version)
		}
		if iamOperations[c.Operation] != nil {
			c.Service = serviceIAM
		}
		return s.call(c, run)
	}()
	var body any
	name, status := c.Operation+"Response", http.StatusOK
	type metadata struct {
		RequestID string `xml:"RequestId"`
	}
	if err != nil {
		e := c.response(err)
		name, status = "ErrorResponse", e.status
		body = struct {
			Error struct{ Code, Message string }
			metadata
		}{struct{ Code, Message string }{e.code, e.message}, metadata{uuid.NewString()}}
	} else {
		body = struct {
			Result           *namedResult
			ResponseMetadata metadata
		}{&namedResult{c.Operation + "Result", result}, metadata{uuid.NewString()}}
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	// The client may have disconnected.
	_ = xml.NewEncoder(w).EncodeElement(body, xml.StartElement{Name: xml.Name{Local: name}})
}

// namedResult is an element of XML with a name.
type namedResult struct {
	name  string
	value any
}

// MarshalXML implements xml.Marshaler.
func (r *namedResult) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if start.Name.Local = r.name; r.value == nil {
		r.value = struct{}{}
	}
	return e.EncodeElement(r.value, start)
}

// serveEKS serves an operation of EKS: parameters in the path and in a JSON body, and responses in JSON.
func (s *Server) serveEKS(w http.ResponseWriter, hr *http.Request, name string, run operation) {
	c := &call{http: hr, now: time.Now(), Call: Call{Service: serviceEKS, Operation: name, Parameters: map[string]string{}}}
	result, err := func() (any, error) {
		var err error
		if c.body, err = io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody)); err != nil {
			return nil, err
		}
		for _, name := range []string{"name", "principalArn", "resourceArn"} {
			c.Parameters[name] = hr.PathValue(name)
		}
		maps.DeleteFunc(c.Parameters, func(_, value string) bool { return value == "" })
		members := map[string]json.RawMessage{}
		if len(c.body) > 0 {
			if err := json.Unmarshal(c.body, &members); err != nil {
				return nil, errorf("SerializationException", "%v", err)
			}
		}
		for name, value := range members {
			var text string
			if json.Unmarshal(value, &text) != nil {
				text = string(value)
			}
			c.Parameters[name] = text
		}
		return s.call(c, run)
	}()
	if err != nil {
		failJSON(w, c.response(err))
		return
	}
	writeJSON(w, http.StatusOK, result)
}

func failJSON(w http.ResponseWriter, e *apiError) {
	w.Header().Set("X-Amzn-ErrorType", e.code)
	writeJSON(w, e.status, map[string]string{"message": e.message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(v)
}

// call authenticates, delays and executes a call, and records it. It ends the goroutine with
// http.ErrAbortHandler to close the connection.
func (s *Server) call(c *call, run operation) (result any, err error) {
	var fault Fault
	prepare := func() error {
		if c.Operation != withWebIdentity {
			if err := s.authenticate(c); err != nil {
				return err
			}
		}
		fault = s.faultFor(c.Call)
		if !fault.wait(c.http.Context()) {
			fault.lost = lostRequest
		}
		if e := fault.answer(c.Service); e != nil {
			return e
		}
		if c.Operation == withWebIdentity && fault.lost != lostRequest {
			return s.verifyWebIdentity(c)
		}
		return nil
	}
	err = prepare()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		// The token is a secret.
		delete(c.Parameters, "WebIdentityToken")
		if err != nil {
			c.ErrorCode = c.response(err).code
		}
		s.calls = append(s.calls, c.Call)
		if fault.lost != "" {
			panic(http.ErrAbortHandler)
		}
	}()
	if err != nil || fault.lost == lostRequest {
		return nil, err
	}
	if c.key != nil {
		// The user or role may have changed while the call waited.
		if c.caller, err = s.principalOf(c.key, c.now); err != nil {
			return nil, err
		}
	}
	result, err = run(s, c)
	if err := s.save(); err != nil {
		return nil, err
	}
	return result, err
}

// requires returns an error if the caller lacks permission for an action on a resource.
func (c *call) requires(action, resource string) error {
	if decide(c.caller.policies, action, resource, c.caller.conditions()) != allowed {
		return errorf("AccessDenied", "User: %s is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action",
			c.caller.ARN, action, resource, action)
	}
	return nil
}

// supports returns an error if the call has other parameters of the Query protocol. To ignore them could
// give more permissions than requested.
func (c *call) supports(names ...string) error {
	for param := range c.Parameters {
		name, _, _ := strings.Cut(param, ".")
		if !slices.Contains(names, name) {
			return validationError("%s is not supported by this server", param)
		}
	}
	return nil
}
