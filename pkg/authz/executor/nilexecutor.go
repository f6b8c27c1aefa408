package executor

// NilExecutor is the policy for ManifestWorks without an executor, which act as the
// agent.
type NilExecutor string

const (
	// Allow allows them for all users with permission to write ManifestWorks.
	Allow NilExecutor = "Allow"
	// Deny denies them.
	Deny NilExecutor = "Deny"
	// Check requires the permission to use the agent's own ServiceAccount.
	Check NilExecutor = "Check"
)

// NilExecutors are all policies.
var NilExecutors = []NilExecutor{Allow, Deny, Check}

// AgentExecutor is the name in execute-as rules of a ManifestWork without executor. Like
// on upstream hubs it has no namespace, so it differs from every executor.
const AgentExecutor = "system:serviceaccount::klusterlet-work-sa"
