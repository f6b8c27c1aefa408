package fakeaws

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// protocol is the wire format of requests and responses.
type protocol interface {
	// decode fills in the service, the operation and its parameters.
	decode(r *request) *apiError
	answer(w http.ResponseWriter, r *request, answer any)
	fail(w http.ResponseWriter, r *request, e *apiError)
}

func (s *Server) protocolOf(hr *http.Request) protocol {
	if hr.URL.Path == "/" || hr.URL.Path == "" {
		return queryProtocol{}
	}
	return restProtocol{}
}

// requestID returns a new random UUID.
func requestID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// randomName returns n random upper case letters and digits, as in the ids of AWS.
func randomName(n int) string { return (rand.Text() + rand.Text())[:n] }

// parameters returns the parameters of the request for a Call.
func (r *request) parameters() map[string]string {
	params := maps.Clone(r.params)
	if params == nil {
		params = map[string]string{}
	}
	delete(params, "Action")
	delete(params, "Version")
	delete(params, "WebIdentityToken")
	for name, value := range r.input {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		params[name] = text
	}
	for name := range params {
		if strings.HasPrefix(name, "X-Amz-") {
			delete(params, name)
		}
	}
	return params
}

// missing returns an error if a request lacks a required member.
func (r *request) missing() *apiError {
	for _, name := range r.op.required {
		switch {
		case r.has(name):
		case r.service == serviceEKS:
			return errorf(http.StatusBadRequest, cmp.Or(r.op.invalid, "InvalidParameterException"), "The parameter %s must not be null.", name)
		default:
			return validationError("Value null at '%s' failed to satisfy constraint: Member must not be null", lowerFirst(name))
		}
	}
	return nil
}

// has reports whether the request has a member: a parameter, a list, or a member of JSON.
func (r *request) has(name string) bool {
	if _, ok := r.params[name]; ok {
		return true
	}
	if value, ok := r.input[name]; ok {
		return string(value) != "null"
	}
	for param := range r.params {
		if strings.HasPrefix(param, name+".") {
			return true
		}
	}
	return false
}

// node is an element of XML.
type node struct {
	name  string
	text  string
	nodes []node
}

func element(name string, nodes ...node) node { return node{name: name, nodes: nodes} }

func textElement(name, value string) node { return node{name: name, text: value} }

func timeElement(name string, t time.Time) node {
	return textElement(name, t.UTC().Format("2006-01-02T15:04:05Z"))
}

func listElement(name string, members ...node) node {
	for i := range members {
		members[i].name = "member"
	}
	return node{name: name, nodes: members}
}

// MarshalXML writes the element under its own name.
func (n node) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	start := xml.StartElement{Name: xml.Name{Local: n.name}}
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	if n.text != "" {
		if err := e.EncodeToken(xml.CharData(n.text)); err != nil {
			return err
		}
	}
	for _, child := range n.nodes {
		if err := e.Encode(child); err != nil {
			return err
		}
	}
	return e.EncodeToken(start.End())
}

// queryProtocol is the protocol of IAM and STS: form parameters, and responses in XML.
type queryProtocol struct{}

// queryServices are the services of the protocol, by the version of their API.
var queryServices = map[string]struct {
	name, namespace string
	operations      map[string]*operation
}{
	"2010-05-08": {serviceIAM, "https://iam.amazonaws.com/doc/2010-05-08/", iamOperations},
	"2011-06-15": {serviceSTS, "https://sts.amazonaws.com/doc/2011-06-15/", stsOperations},
}

func (queryProtocol) decode(r *request) *apiError {
	values, err := url.ParseQuery(r.http.URL.RawQuery)
	if err != nil {
		return errorf(http.StatusBadRequest, "MalformedQueryString", "The query string is malformed: %v", err)
	}
	switch r.http.Method {
	case http.MethodGet:
	case http.MethodPost:
		form, err := url.ParseQuery(string(r.body))
		if err != nil {
			return errorf(http.StatusBadRequest, "MalformedQueryString", "The body is malformed: %v", err)
		}
		for name, all := range form {
			values[name] = append(values[name], all...)
		}
	default:
		return errorf(http.StatusBadRequest, "InvalidAction", "Method %s is not supported", r.http.Method)
	}
	r.params = make(map[string]string, len(values))
	for name, all := range values {
		if len(all) > 1 {
			return errorf(http.StatusBadRequest, "ValidationError", "Parameter %s is given %d times", name, len(all))
		}
		r.params[name] = all[0]
	}
	r.name = r.params["Action"]
	if r.name == "" {
		return errorf(http.StatusBadRequest, "MissingAction", "Missing Action")
	}
	service := queryServices[r.params["Version"]]
	r.service = service.name
	r.op = service.operations[r.name]
	if r.op == nil {
		return errorf(http.StatusBadRequest, "InvalidAction", "Could not find operation %s for version %s", r.name, r.params["Version"])
	}
	return nil
}

func (queryProtocol) answer(w http.ResponseWriter, r *request, answer any) {
	response := element(r.name + "Response")
	if result, ok := answer.(node); ok {
		result.name = r.name + "Result"
		response.nodes = append(response.nodes, result)
	}
	response.nodes = append(response.nodes, element("ResponseMetadata", textElement("RequestId", r.id)))
	writeXML(w, r, http.StatusOK, response)
}

func (queryProtocol) fail(w http.ResponseWriter, r *request, e *apiError) {
	kind := "Sender"
	if e.Status >= http.StatusInternalServerError {
		kind = "Receiver"
	}
	writeXML(w, r, e.Status, element("ErrorResponse",
		element("Error", textElement("Type", kind), textElement("Code", e.Code), textElement("Message", e.Message)),
		textElement("RequestId", r.id)))
}

func writeXML(w http.ResponseWriter, r *request, status int, n node) {
	var out strings.Builder
	if err := xml.NewEncoder(&out).Encode(n); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text := out.String()
	for _, service := range queryServices {
		if service.name == r.service {
			text = strings.Replace(text, ">", " xmlns="+strconv.Quote(service.namespace)+">", 1)
		}
	}
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("X-Amzn-RequestId", r.id)
	w.WriteHeader(status)
	// The client may have disconnected.
	_, _ = io.WriteString(w, text)
}

// restProtocol is the protocol of EKS: paths and JSON.
type restProtocol struct{}

func (restProtocol) decode(r *request) *apiError { return decodeEKS(r) }

func (restProtocol) answer(w http.ResponseWriter, r *request, answer any) {
	writeJSON(w, r, http.StatusOK, answer)
}

func (restProtocol) fail(w http.ResponseWriter, r *request, e *apiError) {
	w.Header().Set("X-Amzn-ErrorType", e.Code)
	body := map[string]string{"message": e.Message}
	maps.Copy(body, e.Fields)
	writeJSON(w, r, e.Status, body)
}

func writeJSON(w http.ResponseWriter, r *request, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-RequestId", r.id)
	w.WriteHeader(status)
	// The client may have disconnected.
	_, _ = w.Write(data)
}
