// Package skew runs the programs of this version together with those of the previous release, which
// hack/build-previous.sh builds into bin/previous. `make test-skew` runs it. The build tag skew keeps it
// out of `make test`, because it needs the history of the repository.
package skew
