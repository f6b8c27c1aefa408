// Package version contains the version of the programs.
package version

import (
	"fmt"
	"regexp"
	"strings"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/version"
)

// separator stands between the version of the Kubernetes libraries, from which they derive API levels, and the
// version of this project. The Makefile sets both.
const separator = "+hub-apiserver."

var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// Unknown is the version of a program that was built without the Makefile.
const Unknown = "unknown"

// Short returns the version of this project, such as v0.1.0.
func Short() string { return Of(version.Get()) }

// Of returns the version of this project in the response of a server at /version.
func Of(info apimachineryversion.Info) string {
	own, _ := split(info.GitVersion)
	return own
}

// Long returns the version of this project with its commit, and the versions of Go and of the Kubernetes
// libraries.
func Long() string {
	info := version.Get()
	own, libraries := split(info.GitVersion)
	return fmt.Sprintf("%s, commit %s, %s, Kubernetes libraries %s", own, info.GitCommit, info.GoVersion, libraries)
}

func split(gitVersion string) (own, libraries string) {
	libraries, own, stamped := strings.Cut(gitVersion, separator)
	if !stamped {
		return Unknown, gitVersion
	}
	return own, libraries
}

// Docs returns the URL of a page of the documentation of this release, such as troubleshooting.md. A program that is no
// release returns that of the newest.
func Docs(page string) string { return docs(Short(), page) }

func docs(own, page string) string {
	if !released.MatchString(own) {
		own = "main"
	}
	return "https://github.com/open-cluster-management-io/hub-apiserver/blob/" + own + "/docs/" + page
}
