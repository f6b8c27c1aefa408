// Package hostile generates hostile input for every language and decoder that reads bytes
// from tenants or managed clusters. It sends the input to a hub and an agent, and measures
// the cost of each input.
//
// [Classes] returns the table of generators. A row contains the language, the class of input
// and the function that generates one. To add a generator, add a row. The class, a size from
// 1 to 100 and a seed determine an input and reproduce it.
//
// An input is within the bound if the server and the agent each need at most 1 s of CPU
// and 64 MB of memory above idle for it, and if it is either refused, or evaluated and
// reported by the agent. [Input.Check] also bounds its effect. [Site.Run] measures one input.
//
// `make test` runs a small fixed corpus. `make hostile` runs the campaign:
//
//	HOSTILE_SEED     seed of the campaign; the time if not set
//	HOSTILE_INPUTS   number of inputs of each class; 4 if not set
//	HOSTILE_MINUTES  minutes after which the campaign starts no more inputs; unlimited if not set
//	HOSTILE_ONLY     regular expression that selects classes, in the form language/class
//	HOSTILE_REPEAT   one input to repeat: language/class/size/seed, as the campaign prints it
//	KEEP             directory that keeps data and logs
package hostile
