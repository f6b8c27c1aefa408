// Package awsapply provisions the AWS resources that pkg/irsa computes: the role of each accepted cluster in the account
// of the hub, and its access entry.
//
// It calls IAM and EKS through the AWS SDK, which finds credentials and endpoints with its own environment variables
// and files. The SDK retries calls that are throttled or get no response, up to three attempts within ten seconds.
// Other errors, for example for a role that EKS does not find yet, are returned to the caller, which retries later.
package awsapply
