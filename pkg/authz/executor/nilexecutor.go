package executor

// NilExecutor says what becomes of works that name no executor, and so act as the agent.
type NilExecutor string

const (
	// Allow lets everybody write them who may write works.
	Allow NilExecutor = "Allow"
	// Deny refuses them.
	Deny NilExecutor = "Deny"
	// Check judges them as if they named the agent's own ServiceAccount.
	Check NilExecutor = "Check"
)

// NilExecutors are all that there are.
var NilExecutors = []NilExecutor{Allow, Deny, Check}

// AgentExecutor is the name that execute-as is asked with for a work without
// executor. It has no namespace, as public hubs have it, so that no executor that can
// be named has the same.
const AgentExecutor = "system:serviceaccount::klusterlet-work-sa"
