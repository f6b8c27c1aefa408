package postgrestest

import "syscall"

// bind ends a process with the thread that starts it: after SIGQUIT, PostgreSQL and all its children stop immediately.
func bind(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGQUIT }
