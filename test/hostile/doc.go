// Package hostile generates hostile input for every language and decoder that takes bytes
// from tenants or managed clusters, sends it to a real hub and agent, and measures what
// each input costs.
//
// [Classes] is the table of generators. A row names the language, the class of input and
// the function that generates one; adding a generator is adding a row. An input is
// determined by its class, a size from 1 to 100 and a seed, which together reproduce it.
//
// An input is within the bound if the server and the agent each need at most 1 s of CPU
// and 64 MB of memory above idle for it, and it is either refused, or evaluated and
// reported by the agent. [Site.Run] judges one input.
//
// `make test` runs a small fixed corpus. `make hostile` runs the campaign:
//
//	HOSTILE_SEED     seed of the campaign; the time if not given
//	HOSTILE_INPUTS   inputs of each class; 4 if not given
//	HOSTILE_MINUTES  the campaign begins no further input after so many minutes; unlimited if not given
//	HOSTILE_ONLY     a regular expression that selects classes, written language/class
//	HOSTILE_REPEAT   one input to repeat: language/class/size/seed, as the campaign prints it
//	KEEP             a directory to keep data and logs in
package hostile
