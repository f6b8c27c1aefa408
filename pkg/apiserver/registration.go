package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/acceptance"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awsapply"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/awsirsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/pkg/registration/denial"
	"open-cluster-management.io/hub-apiserver/pkg/registration/liveness"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
	managedclusterregistration "open-cluster-management.io/hub-apiserver/pkg/registry/register/managedclusterregistration"
)

type RegistrationConfig struct {
	Drivers []registerv1alpha1.RegistrationDriver
	// HubARN is the ARN of the EKS cluster of the hub. It is nil without the driver aws-irsa.
	HubARN *irsa.ARN
	// Mapping determines how that cluster maps IAM roles to groups.
	Mapping     irsa.Mapping
	ManageRoles bool
	// ResourceTags are additional tags of resources that the server creates in AWS.
	ResourceTags map[string]string
	// AutoApproval contains the rules of automatic acceptance. The certificate requests of
	// AutoApprovedUsers are approved.
	AutoApproval      registration.AutoApproval
	AutoApprovedUsers []string
	// MaxRequests is the maximum number of certificate requests of a cluster on the hub.
	MaxRequests int
	// DrainTimeout is how long the agent of a deleted cluster keeps its access to clean up.
	DrainTimeout time.Duration
	// Labels are labels of the objects that the server creates on the hub for an accepted cluster.
	Labels map[string]string
}

// clusterRegistration registers clusters if this server serves ManagedClusters. Otherwise the controllers
// of the hub register them.
type clusterRegistration struct {
	dependencies *RegistrationDependencies
	// groups returns the groups of the agents of a cluster on the hub. It reads registrations. Both are
	// nil if this server does not register clusters.
	groups        func(cluster string) []string
	registrations cache.SharedIndexInformer
	// gate is nil if this server does not register clusters.
	gate *denial.Gate
}

// guard makes the generic server refuse the agents of denied clusters.
func (a *assembly) guard() {
	gate, build := a.registering.gate, a.generic.BuildHandlerChainFunc
	if gate == nil {
		return
	}
	a.generic.Authorization.Authorizer = gate.Authorizer(a.generic.Authorization.Authorizer)
	a.generic.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return build(gate.Handle(api), config)
	}
}

func (a *assembly) register() error {
	s, config := a.server, a.extra.Registration
	clients, informers, hub, labelled := s.clients, s.informers, s.hub, s.hubInformers
	if clients.clusters != clients.own {
		a.generic.MergedResourceConfig.DisableVersions(registerv1alpha1.SchemeGroupVersion)
		return nil
	}
	decisions := &managedcluster.Decisions{}
	records := managedclusterregistration.NewRecords(decisions, clock.RealClock{})
	clusters := informers.clusters.Cluster().V1().ManagedClusters()
	registrations := informers.own.Register().V1alpha1().ManagedClusterRegistrations()
	access := registration.NewAccess(hub, labelled)
	access.Labels = config.Labels

	registrar := &registration.Registrar{
		HubARN: config.HubARN, Mapping: config.Mapping,
		Records: records, Clusters: decisions, Decisions: decisions,
		MayDecide: func(ctx context.Context, cluster string) error {
			return acceptance.Check(ctx, a.generic.Authorization.Authorizer, cluster)
		},
		Namespaces: a.generic.SharedInformerFactory.Core().V1().Namespaces().Lister(), // admission uses the same informer
		Revoker:    access, Clock: clock.RealClock{},
	}
	out := &a.registering
	out.gate = denial.New(clock.RealClock{})
	registrar.Gate = out.gate
	if _, err := clusters.Informer().AddEventHandler(out.gate.Handler()); err != nil {
		return fmt.Errorf("watching ManagedClusters: %w", err)
	}
	var requests certificatesinformers.CertificateSigningRequestInformer
	if slices.Contains(config.Drivers, registerv1alpha1.DriverCSR) {
		requests = labelled.Certificates().V1().CertificateSigningRequests()
		registrar.Drivers = append(registrar.Drivers, csr.Driver{Requests: requests.Lister(), Hub: hub})
		approver, err := csr.NewApprover(csr.Options{
			Hub: hub, CSRs: requests,
			Clusters: clients.clusters.ClusterV1(), ClusterInformer: clusters, Records: records, Registrations: registrations,
			AutoApproved: config.AutoApprovedUsers, MaxRequests: config.MaxRequests, Clock: clock.RealClock{},
		})
		if err != nil {
			return err
		}
		registrar.Approver = approver
		s.controllers = append(s.controllers, approver.Run)
	}
	if slices.Contains(config.Drivers, registerv1alpha1.DriverAWSIRSA) {
		driver, err := config.newAWSDriver(hub, records)
		if err != nil {
			return err
		}
		registrar.Drivers = append(registrar.Drivers, driver)
	} else {
		registrar.HubARN = nil
	}
	check := registration.NewHubCheck(registrar.Drivers)
	registrar.HubProblems = check.Problems
	s.hooks["registration-hub-check"] = check.Run
	out.dependencies = &RegistrationDependencies{Registrar: registrar, Records: records, Decisions: decisions}

	out.registrations = registrations.Informer()
	out.groups = func(cluster string) []string {
		record, err := registrations.Lister().Get(cluster)
		if err != nil {
			return nil // the only error of the cache is not found
		}
		return registration.AgentsOf(registrar.Drivers, record).Groups
	}

	controller := registration.NewController(registration.Options{
		Clusters: clients.clusters.ClusterV1(), ClusterInformer: clusters, Registrations: registrations, Records: records,
		Drivers: registrar.Drivers, Access: access, Hub: hub, HubInformers: labelled, Requests: requests, Works: clients.works.WorkV1(), Addons: clients.addons.AddonV1alpha1(),
		CachedWorks: informers.works.Work().V1().ManifestWorks().Lister(), DrainTimeout: config.DrainTimeout, Events: a.recorder,
		Decisions: decisions, EnsureRecord: registrar.EnsureRecord, AutoApproval: config.AutoApproval,
	})
	alive := liveness.NewController(liveness.Options{
		Clusters: clients.clusters.ClusterV1(), ClusterInformer: clusters,
		Leases: hub.CoordinationV1(), LeaseInformer: labelled.Coordination().V1().Leases(), Clock: clock.RealClock{},
	})
	s.controllers = append(s.controllers, controller.Run, alive.Run)
	return nil
}

func (c *RegistrationConfig) newAWSDriver(hub kubernetes.Interface, records registration.Records) (registration.Driver, error) {
	// This checks for a few seconds at most that the credentials belong to the account of the hub.
	cloud, err := awsapply.New(context.Background(), *c.HubARN)
	if err != nil {
		return nil, fmt.Errorf("registration driver %s: %w", registerv1alpha1.DriverAWSIRSA, err)
	}
	return awsirsa.New(awsirsa.Options{
		HubARN: *c.HubARN, Mapping: c.Mapping, ManageRoles: c.ManageRoles, ResourceTags: c.ResourceTags,
		Cloud: cloud, Hub: hub, Records: records,
	}), nil
}
