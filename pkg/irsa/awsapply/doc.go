// Package awsapply makes AWS have what pkg/irsa says that it should: the role of each
// accepted cluster in the account of the hub, and its access entry.
//
// It calls IAM and EKS through the AWS SDK, which finds credentials and endpoints by
// its own environment variables and files. The SDK repeats a call that was throttled
// or got no answer, up to three attempts within ten seconds; everything else that
// fails, such as a role that EKS does not know yet, is returned, for the caller to
// come back later.
package awsapply
