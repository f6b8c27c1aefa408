package child

import "syscall"

func bind(attributes *syscall.SysProcAttr, signal syscall.Signal) { attributes.Pdeathsig = signal }
