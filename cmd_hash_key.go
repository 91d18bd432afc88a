package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"penstock/proxy"
)

func newHashKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hash-key",
		Short: "Turn a tenant's API key into the key_hash of the configuration",
		Long: `Read an API key from standard input and print the key_hash of its [[tenant]], alone
on one line. The configuration then knows the key when it comes, and cannot tell it.
The key has 20 to 512 visible ASCII characters; a line end behind it is not part of
it. Nothing else is read, no configuration and no environment, so that a key can be
hashed where it is made: the same key has the same hash everywhere.

The hash is HMAC-SHA-256, quick to check at every request and safe only for keys that
nobody can guess: make them by a random generator, as below, never by hand.

To change a key without a gap, give the tenant both hashes, as in
key_hash = ["OLD", "NEW"], reload, move the clients, and take the old one out.`,
		Example: `  openssl rand -hex 32 > search.key
  penstock hash-key < search.key
  printf %s "$KEY" | penstock hash-key`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f, ok := cmd.InOrStdin().(*os.File); ok && isTerminal(f) {
				fmt.Fprintln(cmd.ErrOrStderr(), "type the key and end with Ctrl-D")
			}
			hash, err := hashKey(cmd.InOrStdin())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hash)
			return err
		},
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	return err == nil && nullErr == nil && info.Mode()&os.ModeCharDevice != 0 && !os.SameFile(info, null)
}

// hashKey reads the one key that in holds. Its errors never quote it.
func hashKey(in io.Reader) (proxy.KeyHash, error) {
	const more = 4 << 10 // than any key and its line end
	text, err := io.ReadAll(io.LimitReader(in, more))
	if err != nil {
		return proxy.KeyHash{}, fmt.Errorf("reading the key: %w", err)
	}
	key := strings.TrimRight(string(text), "\r\n")
	switch err := proxy.CheckKey(key); {
	case key == "":
		return proxy.KeyHash{}, errors.New("no key on standard input")
	case len(text) == more:
		return proxy.KeyHash{}, fmt.Errorf("want a key of %d to %d characters, got more", proxy.MinKey, proxy.MaxKey)
	case strings.ContainsAny(key, "\r\n"):
		return proxy.KeyHash{}, errors.New("want one key: standard input has several lines")
	case err != nil:
		return proxy.KeyHash{}, err
	}
	return proxy.HashKey(key), nil
}
