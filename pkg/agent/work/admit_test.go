package work

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// forgetful implements Executors and calls a function for each call of Forget.
type forgetful struct {
	forget func(types.NamespacedName)
}

func (f forgetful) Admit(context.Context, AdmitRequest) (dynamic.Interface, error) { return nil, nil }
func (f forgetful) Run(context.Context, func(types.NamespacedName))                {}
func (f forgetful) Forget(executor types.NamespacedName)                           { f.forget(executor) }

// TestForgottenExecutorIsNamedAgain checks that a ManifestWork that names an executor while the
// executor is being forgotten has another pass. Without that pass, the ManifestWork would miss
// changes of the permissions.
func TestForgottenExecutorIsNamedAgain(t *testing.T) {
	executor := types.NamespacedName{Namespace: "ops", Name: "deployer"}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{executorIndex: executorIndexer})
	var forgotten []types.NamespacedName
	c := &Controller{byExecutor: index, woken: sets.New[cache.ObjectName](), executors: forgetful{func(executor types.NamespacedName) {
		forgotten = append(forgotten, executor)
		if err := index.Add(&workv1.ManifestWork{
			ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "w"},
			Spec: workv1.ManifestWorkSpec{Executor: &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
				Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "ops", Name: "deployer"},
			}}},
		}); err != nil {
			t.Error(err)
		}
	}}}
	c.dropExecutor(executor)
	if woken := c.takeWoken(cache.ObjectName{Namespace: "cluster1", Name: "w"}); len(forgotten) != 1 || !woken {
		t.Errorf("dropExecutor() forgot %v, woken = %t, want one executor and true", forgotten, woken)
	}
	c.dropExecutor(executor)
	if len(forgotten) != 1 {
		t.Errorf("dropExecutor() of a named executor forgot %v, want none", forgotten[1:])
	}
}
