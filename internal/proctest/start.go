package proctest

import (
	"os/exec"
	"runtime"
)

// Start starts a command whose SysProcAttr has a Pdeathsig, by which the kernel ends it with this process. The kernel sends the signal
// when the thread that started the command ends, so one goroutine keeps that thread and reaps the command; then it calls ended with
// what Wait returned. If the command can't be started, the error says why and ended is never called.
func Start(cmd *exec.Cmd, ended func(error)) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}
