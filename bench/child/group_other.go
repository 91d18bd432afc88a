//go:build !unix

package child

import "os/exec"

func ownGroup(*exec.Cmd) {}

// signalGroup ends the process; there are no groups and no gentler way here.
func signalGroup(cmd *exec.Cmd, _ bool) { _ = cmd.Process.Kill() }
