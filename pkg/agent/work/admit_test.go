package work

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// forgetful calls back when it is to forget an executor.
type forgetful struct {
	forget func(types.NamespacedName)
}

func (f forgetful) Admit(context.Context, AdmitRequest) (dynamic.Interface, error) { return nil, nil }
func (f forgetful) Run(context.Context, func(types.NamespacedName))                {}
func (f forgetful) Forget(executor types.NamespacedName)                           { f.forget(executor) }

// TestForgottenExecutorIsNamedAgain: a work that begins to name an executor while it
// is forgotten is judged anew, since it would not hear of changes otherwise.
func TestForgottenExecutorIsNamedAgain(t *testing.T) {
	executor := types.NamespacedName{Namespace: "ops", Name: "deployer"}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{executorIndex: executorIndexer})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	var forgotten []types.NamespacedName
	c := &Controller{byExecutor: index, queue: queue, woken: sets.New[string](), executors: forgetful{func(executor types.NamespacedName) {
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
	if len(forgotten) != 1 || queue.Len() != 1 || !c.takeWoken("w") {
		t.Errorf("forgotten are %v, %d works are looked at", forgotten, queue.Len())
	}
	// One that is named is not forgotten.
	c.dropExecutor(executor)
	if len(forgotten) != 1 {
		t.Errorf("forgotten are %v", forgotten)
	}
}
