package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// Outcomes of an attempt to write a ManifestWork. The outcome of an error is its status code.
const (
	// asMine is success: executorMine is stored.
	asMine = iota
	// unchanged is success: the stored spec does not change.
	unchanged

	forbidden = http.StatusForbidden
	invalid   = http.StatusUnprocessableEntity
)

// outcome returns the text of an outcome for messages.
func outcome(of int) string {
	if of == asMine || of == unchanged {
		return "success"
	}
	return strconv.Itoa(of)
}

// evasion is a request that tries to store a ManifestWork without an executor, or with an executor
// that the caller is not allowed to name. NAME in its body stands for the name of the ManifestWork.
type evasion struct {
	title string
	// target is the executor of the existing ManifestWork, or "" for none. If the verb is POST or
	// fresh is set, no ManifestWork exists.
	target string
	fresh  bool
	verb   string
	kind   types.PatchType
	sub    string
	body   string
	params map[string]string
	// stranger is the outcome for a caller without execute-as. deployer is the outcome for a
	// caller with execute-as on executorMine.
	stranger, deployer int
}

const (
	executorMine   = `{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"apps","name":"deployer"}}}`
	executorTheirs = `{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"kube-system","name":"admin"}}}`
	targetWorkload = `"workload":{"manifests":[` + unsorted + `]}`
	workHead       = `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":`
	// targetOwner is the field manager of server-side apply that owns the executors of the targets.
	targetOwner = "owner"
)

// specced returns the body of a ManifestWork. The members are the JSON fields of its spec.
func specced(members ...string) string {
	return workHead + `{"name":"NAME"},"spec":{` + strings.Join(members, ",") + `}}`
}

func executorMember(executor string) string { return `"executor":` + executor }

// evasions returns all attempts.
func evasions() []evasion {
	var out []evasion
	add := func(stranger, deployer int, e evasion) {
		e.stranger, e.deployer = stranger, deployer
		out = append(out, e)
	}
	apply := func(manager string, force bool) map[string]string {
		return map[string]string{"fieldManager": manager, "force": fmt.Sprint(force)}
	}
	another := fmt.Sprintf(`"workload":{"manifests":[%s]}`, judgedManifest("another"))
	patch := func(title, target string, kind types.PatchType, body string) evasion {
		return evasion{title: title, target: target, verb: "PATCH", kind: kind, body: body}
	}

	// Requests that create a ManifestWork.
	for _, create := range []struct {
		title, member      string
		stranger, deployer int
	}{
		{"no executor", "", forbidden, forbidden},
		{"a null executor", executorMember("null"), forbidden, forbidden},
		{"another key", `"Executor":` + executorTheirs, forbidden, forbidden},
		{"the executor of others", executorMember(executorTheirs), forbidden, forbidden},
		{"the executor of others after mine", executorMember(executorMine) + "," + executorMember(executorTheirs), forbidden, forbidden},
		{"null after mine", executorMember(executorMine) + `,"executor":null`, forbidden, forbidden},
		{"mine", executorMember(executorMine), forbidden, asMine},
	} {
		members := []string{targetWorkload}
		if create.member != "" {
			members = append(members, create.member)
		}
		body := specced(members...)
		add(create.stranger, create.deployer, evasion{title: "create with " + create.title, verb: "POST", body: body})
		add(create.stranger, create.deployer, evasion{title: "generateName with " + create.title, verb: "POST",
			body: strings.Replace(body, `"name":"NAME"`, `"generateName":"NAME-"`, 1)})
		add(http.StatusNotFound, http.StatusNotFound, evasion{title: "PUT of a new name with " + create.title, verb: http.MethodPut, fresh: true, body: body})
		// Server-side apply rejects duplicate and unknown keys.
		if !strings.Contains(create.title, "after mine") && create.title != "another key" {
			add(create.stranger, create.deployer, evasion{title: "server-side apply of a new name with " + create.title, verb: "PATCH", fresh: true,
				kind: types.ApplyPatchType, body: body, params: apply("test", true)})
		}
	}

	// Invalid executors.
	for _, executor := range []string{
		`{}`, `{"subject":null}`, `{"subject":{}}`, `{"subject":{"type":"ServiceAccount"}}`,
		`{"subject":{"type":"ServiceAccount","serviceAccount":null}}`, `{"subject":{"type":"ServiceAccount","serviceAccount":{}}}`,
		strings.Replace(executorMine, "ServiceAccount", "User", 1), strings.Replace(executorMine, "ServiceAccount", "serviceaccount", 1),
		strings.Replace(executorMine, `"type":"ServiceAccount",`, "", 1),
	} {
		add(invalid, invalid, evasion{title: "create with executor " + executor, verb: "POST", body: specced(targetWorkload, executorMember(executor))})
		add(invalid, invalid, evasion{title: "PUT of executor " + executor, target: executorMine, verb: http.MethodPut, body: specced(targetWorkload, executorMember(executor))})
	}
	for _, account := range [][2]string{
		{"", "deployer"}, {"apps", ""}, {"", ""}, {"", "klusterlet-work-sa"}, {"apps", "Deployer"}, {"Apps", "deployer"},
		{"apps", "a/b"}, {"apps/deployer", "b"}, {"apps", "deployer:b"}, {"apps:deployer", "b"}, {"system:serviceaccount:apps", "deployer"},
		{"apps", " deployer"}, {"apps", `deployer\u0000`}, {"apps", "*"}, {"*", "*"}, {"apps", ".."}, {"apps", "%64eployer"},
		{"apps", strings.Repeat("d", 300)}, {strings.Repeat("n", 300), "deployer"},
	} {
		executor := fmt.Sprintf(`{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"%s","name":"%s"}}}`, account[0], account[1])
		title := fmt.Sprintf("%.30q/%.30q", account[0], account[1])
		add(invalid, invalid, evasion{title: "create as " + title, verb: "POST", body: specced(targetWorkload, executorMember(executor))})
		add(invalid, invalid, patch("merge patch to "+title, executorMine, types.MergePatchType, `{"spec":{"executor":`+executor+`}}`))
	}

	// Requests that write the executor of an existing ManifestWork.
	for _, to := range []struct {
		from, executor     string
		stranger, deployer int
	}{
		{executorMine, "null", forbidden, forbidden},
		{executorTheirs, "null", forbidden, forbidden},
		{executorMine, executorTheirs, forbidden, forbidden},
		{"", executorTheirs, forbidden, forbidden},
		// The objects of the agent, or of the former executor, would be removed or taken over.
		{"", executorMine, forbidden, forbidden},
		{executorTheirs, executorMine, forbidden, forbidden},
	} {
		title := fmt.Sprintf("from %s to %s", inTitle(to.from), inTitle(to.executor))
		add(to.stranger, to.deployer, evasion{title: "PUT " + title, target: to.from, verb: http.MethodPut, body: specced(targetWorkload, executorMember(to.executor))})
		add(to.stranger, to.deployer, patch("merge patch "+title, to.from, types.MergePatchType, `{"spec":{"executor":`+to.executor+`}}`))
		add(to.stranger, to.deployer, patch("strategic merge patch "+title, to.from, types.StrategicMergePatchType, `{"spec":{"executor":`+to.executor+`}}`))
		add(to.stranger, to.deployer, patch("JSON patch "+title, to.from, types.JSONPatchType, `[{"op":"add","path":"/spec/executor","value":`+to.executor+`}]`))
		if to.executor != "null" {
			forced := patch("forced apply "+title, to.from, types.ApplyPatchType, specced(executorMember(to.executor)))
			forced.params = apply("test", true)
			add(to.stranger, to.deployer, forced)
			if to.from != "" {
				polite := forced
				polite.title, polite.params = "apply "+title, apply("test", false)
				add(http.StatusConflict, http.StatusConflict, polite)
			}
		}
	}
	for _, from := range []string{executorMine, executorTheirs} {
		removal := func(title string, kind types.PatchType, body string) {
			add(forbidden, forbidden, patch(title+" from "+inTitle(from), from, kind, body))
		}
		removal("JSON patch: remove", types.JSONPatchType, `[{"op":"remove","path":"/spec/executor"}]`)
		removal("JSON patch: test and remove", types.JSONPatchType, `[{"op":"test","path":"/spec/executor","value":`+from+`},{"op":"remove","path":"/spec/executor"}]`)
		removal("JSON patch: move to an unknown field", types.JSONPatchType, `[{"op":"move","from":"/spec/executor","path":"/spec/moved"}]`)
		removal("JSON patch: copy to an unknown field and remove", types.JSONPatchType, `[{"op":"copy","from":"/spec/executor","path":"/moved"},{"op":"remove","path":"/spec/executor"}]`)
		removal("JSON patch: replace the spec", types.JSONPatchType, `[{"op":"replace","path":"/spec","value":{`+targetWorkload+`}}]`)
		removal("JSON patch: copy the namespace to the name", types.JSONPatchType, `[{"op":"copy","from":"/spec/executor/subject/serviceAccount/namespace","path":"/spec/executor/subject/serviceAccount/name"}]`)
		removal("strategic merge patch: replace the spec", types.StrategicMergePatchType, `{"spec":{"$patch":"replace",`+targetWorkload+`}}`)
		removal("PUT without", "", "")
		out[len(out)-1].verb, out[len(out)-1].body = http.MethodPut, specced(targetWorkload)
		// The field manager that owns the executor applies again, without the field.
		removal("apply that drops the owned executor", types.ApplyPatchType, specced(targetWorkload))
		out[len(out)-1].params = apply(targetOwner, false)
		removal("forced apply that drops the owned executor", types.ApplyPatchType, specced(another))
		out[len(out)-1].params = apply(targetOwner, true)
	}
	for _, path := range []string{"/spec/executor/subject", "/spec/executor/subject/serviceAccount", "/spec/executor/subject/type", "/spec/executor/subject/serviceAccount/name"} {
		add(invalid, invalid, patch("JSON patch: remove "+path, executorMine, types.JSONPatchType, `[{"op":"remove","path":"`+path+`"}]`))
	}
	add(invalid, invalid, patch("strategic merge patch: delete", executorMine, types.StrategicMergePatchType, `{"spec":{"executor":{"$patch":"delete"}}}`))
	add(unchanged, unchanged, patch("JSON patch: remove and add again", executorMine, types.JSONPatchType, `[{"op":"remove","path":"/spec/executor"},{"op":"add","path":"/spec/executor","value":`+executorMine+`}]`))

	// Requests that keep the executor and change other fields.
	for _, from := range []string{executorMine, executorTheirs, ""} {
		deployer := forbidden
		if from == executorMine {
			deployer = asMine
		}
		title := " as " + inTitle(from)
		add(forbidden, deployer, patch("another manifest"+title, from, types.MergePatchType, `{"spec":{`+another+`}}`))
		add(forbidden, deployer, patch("another deleteOption"+title, from, types.MergePatchType, `{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`))
		add(unchanged, unchanged, patch("a label"+title, from, types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`))
		add(unchanged, unchanged, evasion{title: "apply of a label" + title, target: from, verb: "PATCH", kind: types.ApplyPatchType,
			body: workHead + `{"name":"NAME","labels":{"a":"b"}}}`, params: apply("labels", true)})
		add(unchanged, unchanged, evasion{title: "PUT of a label" + title, target: from, verb: http.MethodPut,
			body: workHead + `{"name":"NAME","labels":{"a":"b"}},"spec":{` + targetWorkload + `,"executor":` + orNull(from) + `}}`})
		// Writes of the status subresource do not change the spec.
		for _, executor := range []string{"null", executorMine, executorTheirs} {
			to := title + " with executor " + inTitle(executor)
			add(unchanged, unchanged, evasion{title: "PUT of the status" + to, target: from, sub: "status", verb: http.MethodPut, body: specced(another, executorMember(executor))})
			status := patch("merge patch of the status"+to, from, types.MergePatchType, `{"spec":{`+another+`,"executor":`+executor+`},"status":{"executorChoice":null}}`)
			status.sub = "status"
			add(unchanged, unchanged, status)
		}
	}
	return out
}

func orNull(executor string) string {
	if executor == "" {
		return "null"
	}
	return executor
}

// inTitle returns the text of an executor for titles.
func inTitle(executor string) string {
	switch executor {
	case executorMine:
		return "mine"
	case executorTheirs:
		return "theirs"
	}
	return "none"
}

// send sends the request of an evasion.
func (e evasion) send(ctx context.Context, client *versioned.Clientset, cluster, name string, dry bool) (*workv1.ManifestWork, error) {
	request := client.WorkV1().RESTClient().Verb(e.verb).Namespace(cluster).Resource("manifestworks")
	if e.verb != "POST" {
		request = request.Name(name)
	}
	if e.sub != "" {
		request = request.SubResource(e.sub)
	}
	for key, value := range e.params {
		request = request.Param(key, value)
	}
	if dry {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	mediaType := runtime.ContentTypeJSON
	if e.kind != "" {
		mediaType = string(e.kind)
	}
	work := &workv1.ManifestWork{}
	err := request.SetHeader("Content-Type", mediaType).Body([]byte(strings.ReplaceAll(e.body, "NAME", name))).Do(ctx).Into(work)
	return work, err
}

// TestNilExecutorCannotBeEvaded tests --nil-executor=Check with callers that lack the permission
// for ManifestWorks without an executor, and --nil-executor=Deny. No request creates a ManifestWork
// without an executor, removes an executor, or sets an executor that the caller is not allowed to
// name. A dry run has the same outcome as the write, and stores nothing.
func TestNilExecutorCannotBeEvaded(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cluster := f.SilentCluster(t)
	writeStatus := rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks/status"}, Verbs: []string{"update", "patch"}}
	stranger, deployer := framework.NewCaller(t, f.Hub, "evading-stranger"), framework.NewCaller(t, f.Hub, "evading-deployer")
	stranger.May(t, cluster, writeWorks, writeStatus)
	deployer.May(t, cluster, writeWorks, writeStatus, executeAs(executorName(judgedExecutor)))
	modes := []string{"Check", "Deny"}
	servers := f.StartServers(t, []string{"--nil-executor=Check"}, []string{"--nil-executor=Deny", "--work-executor=apps/permissions"})
	attempts := evasions()
	// Only with Check is the administrator allowed to create targets without an executor.
	admin := framework.Direct(t, servers[0])
	t.Run("all", func(t *testing.T) {
		for i, mode := range modes {
			for _, c := range []*framework.Caller{stranger, deployer} {
				t.Run(mode+" "+c.Name, func(t *testing.T) {
					t.Parallel()
					e := &evader{
						client: c.At(t, servers[i]), works: admin.WorkV1().ManifestWorks(cluster), cluster: cluster,
						prefix: strings.ToLower(mode) + "-" + c.Name, targets: map[string]*workv1.ManifestWork{},
					}
					for _, attempt := range attempts {
						want := attempt.stranger
						if c == deployer {
							want = attempt.deployer
						}
						// Validation depends on neither the caller nor the mode. Test it once.
						if want == invalid && (c == stranger || mode == "Deny") {
							continue
						}
						if err := e.evades(t.Context(), attempt, want); err != nil {
							t.Errorf("%s: %v", attempt.title, err)
						}
					}
					t.Logf("%d attempts, each of them first as a dry run", e.attempts)
				})
			}
		}
	})
	// Denied creations must store nothing under any name.
	works := framework.Must(admin.WorkV1().ManifestWorks(cluster).List(t.Context(), metav1.ListOptions{}))(t)
	for _, work := range works.Items {
		prepared := strings.Contains(work.Name, "-target-")
		if !prepared && (!strings.Contains(work.Name, deployer.Name) || !equality.Semantic.DeepEqual(work.Spec.Executor, executorOf(judgedExecutor))) {
			t.Errorf("stored ManifestWork %s has executor %v, want only targets and executorMine of %s", work.Name, work.Spec.Executor, deployer.Name)
		}
	}
}

// evader sends the attempts of one caller to one server.
type evader struct {
	client *versioned.Clientset
	// works is the client of the administrator.
	works           workclient.ManifestWorkInterface
	cluster, prefix string
	// targets contains the stored ManifestWorks that the attempts try to change, by their executor.
	targets  map[string]*workv1.ManifestWork
	attempts int
}

// target returns a stored ManifestWork with an executor. It creates one if targets contains none.
func (e *evader) target(ctx context.Context, executor string) (*workv1.ManifestWork, error) {
	if known := e.targets[executor]; known != nil {
		return known, nil
	}
	name := fmt.Sprintf("%s-target-%d", e.prefix, e.attempts)
	members := []string{targetWorkload}
	if executor != "" {
		members = append(members, executorMember(executor))
	}
	body := strings.ReplaceAll(specced(members...), "NAME", name)
	created, err := e.works.Patch(ctx, name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: targetOwner})
	e.targets[executor] = created
	return created, err
}

// evades sends an attempt, first as a dry run. It returns an error if the outcome differs from want.
func (e *evader) evades(ctx context.Context, attempt evasion, want int) error {
	e.attempts++
	var before *workv1.ManifestWork
	name := fmt.Sprintf("%s-new-%d", e.prefix, e.attempts)
	if attempt.verb != http.MethodPost && !attempt.fresh {
		var err error
		if before, err = e.target(ctx, attempt.target); err != nil {
			return err
		}
		name = before.Name
	}
	refused := want != asMine && want != unchanged
	sent := func(dry bool) (*workv1.ManifestWork, error) {
		answer, err := attempt.send(ctx, e.client, e.cluster, name, dry)
		var status apierrors.APIStatus
		if refused != errors.As(err, &status) || refused && status.Status().Code != int32(want) || !refused && err != nil {
			return nil, fmt.Errorf("error (dry run %t) = %v, want %s", dry, err, outcome(want))
		}
		return answer, nil
	}
	if _, err := sent(true); err != nil {
		return err
	}
	if before != nil && !refused {
		if err := e.untouched(ctx, before); err != nil {
			return fmt.Errorf("after the dry run: %w", err)
		}
	}
	answer, err := sent(false)
	switch {
	case err != nil:
		return err
	case refused && before == nil: // the test lists the stored ManifestWorks at its end
		return nil
	case refused:
		return e.untouched(ctx, before)
	}
	delete(e.targets, attempt.target)
	after, err := e.works.Get(ctx, answer.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case want == asMine && !equality.Semantic.DeepEqual(after.Spec.Executor, executorOf(judgedExecutor)):
		return fmt.Errorf("stored executor = %v, want executorMine", after.Spec.Executor)
	case want == unchanged && (after.Generation != before.Generation || !equality.Semantic.DeepEqual(after.Spec, before.Spec)):
		return fmt.Errorf("stored spec = %v, want it unchanged", after.Spec)
	}
	return nil
}

// untouched returns an error if a stored ManifestWork has changed.
func (e *evader) untouched(ctx context.Context, before *workv1.ManifestWork) error {
	after, err := e.works.Get(ctx, before.Name, metav1.GetOptions{})
	if err == nil && after.ResourceVersion != before.ResourceVersion {
		err = fmt.Errorf("stored ManifestWork has resourceVersion %s, want %s; spec = %v", after.ResourceVersion, before.ResourceVersion, after.Spec)
	}
	return err
}
