package nats

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"penstock/fleet"
)

// StartServer runs a NATS server in this process, with JetStream and every
// write on disk before it is answered. stop ends it and waits. Its store is in
// dir, or with "" in a directory that goes with it.
func StartServer(listen, dir string) (stop func(), address string, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, "", err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, "", err
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	// The server would end the process where it cannot listen.
	probe, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, "", fmt.Errorf("fleet.listen: %w", err)
	}
	probe.Close()
	forget := func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "penstock-fleet-"); err != nil {
			return nil, "", err
		}
		forget = func() { os.RemoveAll(dir) }
	} else {
		dir = filepath.Join(dir, "fleet")
	}
	s, err := server.NewServer(&server.Options{ServerName: "penstock", Host: host, Port: port, JetStream: true, StoreDir: dir, SyncAlways: true,
		JetStreamMaxMemory: 16 << 20, JetStreamMaxStore: 256 << 20, MaxPayload: fleet.MaxMessage, NoSigs: true, NoLog: true,
		PingInterval: 2 * time.Second, MaxPingsOut: 2, WriteDeadline: 2 * time.Second})
	if err != nil {
		forget()
		return nil, "", err
	}
	stop = func() {
		s.Shutdown()
		s.WaitForShutdown()
		forget()
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		stop()
		return nil, "", errors.New("the embedded NATS server is not ready after 10 s")
	}
	return stop, s.Addr().String(), nil
}
