//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the process the leader of a group: its children end with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup asks the group to end, or ends it.
func signalGroup(cmd *exec.Cmd, now bool) {
	s := syscall.SIGTERM
	if now {
		s = syscall.SIGKILL
	}
	_ = syscall.Kill(-cmd.Process.Pid, s) // gone already is as good
}
