//go:build !linux

package proxy

import "context"

// hangups does nothing here: net/http notices a client that leaves, but for
// one that sent a byte too many before (golang/go#37145); its stream then
// ends with the first write that fails.
type hangups struct{}

func newHangups() (*hangups, error) { return &hangups{}, nil }

func (h *hangups) add(*clientConn)    {}
func (h *hangups) remove(*clientConn) {}

func (h *hangups) run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
