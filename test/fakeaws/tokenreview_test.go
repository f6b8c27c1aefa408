package fakeaws_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// presign returns the presigned URL in a token for the cluster.
func presign(t *testing.T, c clients, cluster string) string {
	t.Helper()
	out, err := sts.NewPresignClient(c.STS).PresignGetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, func(o *sts.Options) {
			if cluster != "" {
				o.APIOptions = append(o.APIOptions, smithyhttp.AddHeaderValue("x-k8s-aws-id", cluster))
			}
			o.APIOptions = append(o.APIOptions, smithyhttp.AddHeaderValue("X-Amz-Expires", "60"))
		})
	})
	succeed(t, err)
	return out.URL
}

func asToken(u string) string { return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(u)) }

// review sends a TokenReview of the token to a webhook and returns the status.
func review(t *testing.T, webhook http.Handler, token string) authenticationv1.TokenReviewStatus {
	t.Helper()
	body, err := json.Marshal(authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token},
	})
	succeed(t, err)
	recorder := httptest.NewRecorder()
	webhook.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body)))
	var answer authenticationv1.TokenReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("TokenReview = %d %s, want 200 and a TokenReview", recorder.Code, recorder.Body)
	}
	if answer.Status.Authenticated != (answer.Status.Error == "") {
		t.Fatalf("status = %+v, want authenticated or an error", answer.Status)
	}
	return answer.Status
}

// TestChain checks all steps of an agent's authentication: from its ServiceAccount token to its
// user and groups on the hub.
func TestChain(t *testing.T) {
	f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPI)
	_, err := f.hub.EKS.CreateAccessEntry(t.Context(), entryOf(f.hubRole))
	succeed(t, err)
	webhook := f.server.TokenWebhook(hubARN, nil)
	agent := f.onHub(t)
	token := asToken(presign(t, agent, "hub"))
	status := review(t, webhook, token)
	if !status.Authenticated || status.User.Username != "cluster1" || !slices.Equal(status.User.Groups, []string{"open-cluster-management:cluster1"}) {
		t.Fatalf("status = %+v, want user cluster1 with the group of the access entry", status)
	}
	if got := status.User.Extra["canonicalArn"]; !slices.Equal(got, []string{f.hubRole}) {
		t.Errorf("canonical ARN = %v, want %s", got, f.hubRole)
	}
	if status := review(t, webhook, asToken(presign(t, f.agent(t), "hub"))); status.Authenticated {
		t.Errorf("user of the managed cluster's own role = %+v, want not authenticated", status.User)
	}

	// The caller loses access if the access entry or the role is deleted.
	_, err = f.hub.EKS.DeleteAccessEntry(t.Context(), &eks.DeleteAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: &f.hubRole})
	succeed(t, err)
	if status := review(t, webhook, token); status.Authenticated {
		t.Errorf("user without an access entry = %+v, want not authenticated", status.User)
	}
	_, err = f.hub.EKS.CreateAccessEntry(t.Context(), entryOf(f.hubRole))
	succeed(t, err)
	if status := review(t, webhook, token); !status.Authenticated {
		t.Errorf("status with a new access entry = %+v, want authenticated", status)
	}
	for _, remove := range []func() error{
		func() error {
			_, err := f.hub.IAM.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyName: aws.String("access")})
			return err
		},
		func() error {
			_, err := f.hub.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: aws.String("ocm-hub-1")})
			return err
		},
	} {
		succeed(t, remove())
	}
	if status := review(t, webhook, token); status.Authenticated {
		t.Errorf("user of a deleted role = %+v, want not authenticated", status.User)
	}
	// The remaining access entry is for the deleted role.
	createRole(t, f.hub, "ocm-hub-1", hubTrust(t, principalTags))
	if status := review(t, webhook, asToken(presign(t, f.onHub(t), "hub"))); status.Authenticated {
		t.Errorf("user with an access entry for the previous role = %+v, want not authenticated", status.User)
	}
}

// TestRefusedTokens checks that the webhook rejects a valid token if any part of it is changed.
func TestRefusedTokens(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	f := newFleet(t, fakeaws.Options{Clock: clock}, fakeaws.ModeAPI)
	_, err := f.hub.EKS.CreateAccessEntry(t.Context(), entryOf(f.hubRole))
	succeed(t, err)
	agent := f.onHub(t)
	webhook := f.server.TokenWebhook(hubARN, nil)
	good := presign(t, agent, "hub")
	replaced := func(old, new string) string {
		t.Helper()
		changed := strings.Replace(good, old, new, 1)
		if changed == good {
			t.Fatalf("URL of the token = %s, want one with %s", good, old)
		}
		return asToken(changed)
	}
	for name, token := range map[string]string{
		"empty":                    "",
		"no prefix":                strings.TrimPrefix(asToken(good), "k8s-aws-v1."),
		"other prefix":             strings.Replace(asToken(good), "v1", "v2", 1),
		"not base64":               "k8s-aws-v1.***",
		"too long":                 asToken(good + strings.Repeat("x", 4096)),
		"other host":               replaced(strings.TrimPrefix(f.server.URL(), "http://"), "127.0.0.1:1"),
		"other scheme":             replaced("http:", "https:"),
		"user in URL":              replaced("http://", "http://user@"),
		"other path":               replaced("/?", "/other?"),
		"other action":             replaced("GetCallerIdentity", "GetSessionToken"),
		"other version":            replaced("2011-06-15", "2010-05-08"),
		"additional parameter":     asToken(good + "&X-More=1"),
		"parameter twice":          asToken(good + "&action=GetCallerIdentity"),
		"expires too late":         replaced("X-Amz-Expires=60", "X-Amz-Expires=901"),
		"other expiry":             replaced("X-Amz-Expires=60", "X-Amz-Expires=61"),
		"other signature":          replaced("X-Amz-Signature=", "X-Amz-Signature=0"),
		"another cluster":          asToken(presign(t, agent, "hub2")),
		"no cluster":               asToken(presign(t, agent, "")),
		"cluster id not signed":    replaced("%3Bx-k8s-aws-id", ""),
		"caller without a mapping": asToken(presign(t, f.hub, "hub")),
	} {
		t.Run(name, func(t *testing.T) {
			if status := review(t, webhook, token); status.Authenticated {
				t.Errorf("user = %+v, want not authenticated", status.User)
			}
		})
	}
	if status := review(t, webhook, asToken(good)); !status.Authenticated {
		t.Fatalf("status of a valid token = %+v, want authenticated", status)
	}
	clock.SetTime(clock.Now().Add(14 * time.Minute))
	if status := review(t, webhook, asToken(good)); !status.Authenticated {
		t.Errorf("status after 14 minutes = %+v, want authenticated", status)
	}
	clock.SetTime(clock.Now().Add(2 * time.Minute))
	if status := review(t, webhook, asToken(good)); status.Authenticated {
		t.Errorf("status after 16 minutes = %+v, want not authenticated", status)
	}
}

// TestAWSAuth checks the use of the ConfigMap aws-auth in each authentication mode.
func TestAWSAuth(t *testing.T) {
	mapRoles := `
- rolearn: arn:aws:iam::` + hubAccount + `:role/node
  username: system:node:{{SessionName}}
  groups: [system:nodes]
- rolearn: arn:aws:iam::` + hubAccount + `:role/OCM-hub-1
  username: "{{AccountID}}:{{SessionName}}"
  groups: ["system:open-cluster-management:cluster1"]
`
	mapUsers := `[{"userarn":"arn:aws:iam::` + hubAccount + `:user/admin","username":"admin","groups":["system:masters"]}]`
	for name, test := range map[string]struct {
		mode  fakeaws.AuthenticationMode
		data  *fakeaws.ConfigMapData
		err   error
		entry bool
		user  string
	}{
		"ConfigMap":                    {mode: fakeaws.ModeConfigMap, data: &fakeaws.ConfigMapData{MapRoles: mapRoles}, user: hubAccount + ":agent"},
		"both, no entry":               {mode: fakeaws.ModeAPIAndConfigMap, data: &fakeaws.ConfigMapData{MapRoles: mapRoles}, user: hubAccount + ":agent"},
		"both, entry takes precedence": {mode: fakeaws.ModeAPIAndConfigMap, data: &fakeaws.ConfigMapData{MapRoles: mapRoles}, entry: true, user: "cluster1"},
		"API only":                     {mode: fakeaws.ModeAPI, data: &fakeaws.ConfigMapData{MapRoles: mapRoles}},
		"no ConfigMap":                 {mode: fakeaws.ModeConfigMap},
		"invalid ConfigMap":            {mode: fakeaws.ModeConfigMap, data: &fakeaws.ConfigMapData{MapRoles: mapRoles + "x"}},
		"unreadable":                   {mode: fakeaws.ModeConfigMap, data: &fakeaws.ConfigMapData{MapRoles: mapRoles}, err: errors.New("no connection")},
		"entry is ignored":             {mode: fakeaws.ModeConfigMap, entry: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPI)
			if test.entry {
				_, err := f.hub.EKS.CreateAccessEntry(t.Context(), entryOf(f.hubRole))
				succeed(t, err)
			}
			succeed(t, f.server.AddCluster(hubARN, test.mode))
			webhook := f.server.TokenWebhook(hubARN, func() (*fakeaws.ConfigMapData, error) { return test.data, test.err })
			status := review(t, webhook, asToken(presign(t, f.onHub(t), "hub")))
			if status.User.Username != test.user {
				t.Errorf("status = %+v, want user %q", status, test.user)
			}
		})
	}
	t.Run("user", func(t *testing.T) {
		f := newFleet(t, fakeaws.Options{}, fakeaws.ModeConfigMap)
		webhook := f.server.TokenWebhook(hubARN, func() (*fakeaws.ConfigMapData, error) { return &fakeaws.ConfigMapData{MapUsers: mapUsers}, nil })
		if status := review(t, webhook, asToken(presign(t, f.hub, "hub"))); !slices.Equal(status.User.Groups, []string{"system:masters"}) {
			t.Errorf("status = %+v, want the group system:masters", status)
		}
	})
}

// TestDefaultUser checks the username of an access entry without a username.
func TestDefaultUser(t *testing.T) {
	f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPI)
	_, err := f.hub.EKS.CreateAccessEntry(t.Context(), &eks.CreateAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: &f.hubRole})
	succeed(t, err)
	status := review(t, f.server.TokenWebhook(hubARN, nil), asToken(presign(t, f.onHub(t), "hub")))
	if want := "arn:aws:sts::" + hubAccount + ":assumed-role/ocm-hub-1/agent"; status.User.Username != want {
		t.Errorf("user = %q, want %q", status.User.Username, want)
	}
}

// TestNoTokenReview checks that the webhook of the server rejects unknown clusters and bodies
// other than a TokenReview of v1.
func TestNoTokenReview(t *testing.T) {
	s, _ := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	for path, body := range map[string]string{
		"/tokenreview/other":     `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview"}`,
		"/tokenreview/hub":       `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview"}`,
		"/tokenreview/" + hubARN: `{`,
	} {
		answer, err := http.Post(s.URL()+path, "application/json", strings.NewReader(body))
		succeed(t, err)
		succeed(t, answer.Body.Close())
		if answer.StatusCode < 400 {
			t.Errorf("POST %s = %s, want a client error", path, answer.Status)
		}
	}
}

// TestKubeAPIServer checks that a kube-apiserver accepts the tokens.
func TestKubeAPIServer(t *testing.T) {
	f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPIAndConfigMap)
	_, err := f.hub.EKS.CreateAccessEntry(t.Context(), entryOf(f.hubRole))
	succeed(t, err)
	kubeconfig, err := f.server.WebhookKubeconfig(hubARN)
	succeed(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "webhook.kubeconfig")
	succeed(t, os.WriteFile(file, kubeconfig, 0o600))
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{Name: "hub", Dir: dir, NoFsync: true, NoControllerManager: true, APIServerArgs: []string{
		"--authentication-token-webhook-config-file=" + file,
		"--authentication-token-webhook-version=v1",
		"--authentication-token-webhook-cache-ttl=0s",
	}})
	succeed(t, err)
	t.Cleanup(func() {
		// t.Context is already cancelled, and stopping must not take long.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := cluster.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	succeed(t, cluster.Start(t.Context()))
	whoIs := func(token string) (*authenticationv1.SelfSubjectReview, error) {
		cfg := cluster.AnonymousConfig()
		cfg.BearerToken = token
		client, err := kubernetes.NewForConfig(cfg)
		succeed(t, err)
		return client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	who, err := whoIs(asToken(presign(t, f.onHub(t), "hub")))
	succeed(t, err)
	if user := who.Status.UserInfo; user.Username != "cluster1" || !slices.Contains(user.Groups, "open-cluster-management:cluster1") {
		t.Errorf("user = %+v, want cluster1 in the group of the access entry", user)
	}
	if who, err := whoIs(asToken(presign(t, f.agent(t), "hub"))); err == nil {
		t.Errorf("user of a role without a mapping = %+v, want an error", who.Status.UserInfo)
	}
	f.server.SetAWSAuth(hubARN, func() (*fakeaws.ConfigMapData, error) {
		return &fakeaws.ConfigMapData{MapRoles: `[{"rolearn":"` + f.managedRole + `","username":"other","groups":["g"]}]`}, nil
	})
	who, err = whoIs(asToken(presign(t, f.agent(t), "hub")))
	succeed(t, err)
	if who.Status.UserInfo.Username != "other" {
		t.Errorf("user = %+v, want other", who.Status.UserInfo)
	}
}
