//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// What a catch-up fetch is compared with: a process that does nothing but send a cached file with sendfile. kbench limits
// measures that for one connection, but not what it costs; here the sender is a process of its own, as a broker is, and its
// CPU time is read as kbench reads a broker's.

// serveFileCommand makes this program the sender.
const serveFileCommand = "serve-file"

// serveFile prints its address and sends the file over and over to each connection, as many bytes as the connection asks
// for in eight bytes. It ends with its standard input.
func serveFile(path string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if err := sendFile(c.(*net.TCPConn), path); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}()
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func sendFile(c *net.TCPConn, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for {
		var asked [8]byte
		if _, err := io.ReadFull(c, asked[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for left := int64(binary.BigEndian.Uint64(asked[:])); left > 0; left -= min(left, info.Size()) {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
			if _, err := io.CopyN(c, f, min(left, info.Size())); err != nil { // net uses sendfile
				return err
			}
		}
	}
}

// sendfile measures it, with readers that copy and with readers that drop in the kernel.
func (s *session) sendfile(conns int) {
	if err := s.trySendfile(conns); err != nil {
		s.fail("/fetch", "sendfile", err)
	}
}

func (s *session) trySendfile(conns int) (err error) {
	const fileSize = 256 << 20 // as kbench limits: too much for the processor's caches
	path := filepath.Join(s.work, "sendfile")
	if err := os.WriteFile(path, bytes.Repeat([]byte("ottla's measure"), int(min(s.size, fileSize))/15), 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(s.ctx, self, serveFileCommand, path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		stdin.Close()
		err = errors.Join(err, cmd.Wait())
	}()
	line := make([]byte, 64)
	n, err := stdout.Read(line)
	if err != nil {
		return fmt.Errorf("the sender says no address: %w", err)
	}
	address := strings.TrimSpace(string(line[:n]))
	s.sync()
	defer s.hold()()
	process, err := procfs.NewProc(cmd.Process.Pid)
	if err != nil {
		return err
	}
	for _, way := range []struct {
		suffix string
		read   func(*net.TCPConn, int64) error
	}{{"", readCopied}, {"/fetch", readCopied}, {"/fetch-drop", readDropped}} {
		all := make([]*net.TCPConn, conns)
		for i := range all {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			defer c.Close()
			all[i] = c.(*net.TCPConn)
		}
		before, err := process.Stat()
		if err != nil {
			return err
		}
		each, began, done := s.size/int64(conns), time.Now(), make(chan error, conns)
		for _, c := range all {
			go func() {
				_, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(each)))
				done <- errors.Join(err, way.read(c, each))
			}()
		}
		for range all {
			err = errors.Join(err, <-done)
		}
		wall := time.Since(began).Seconds()
		after, statErr := process.Stat()
		if err := errors.Join(err, statErr); err != nil {
			return err
		}
		if way.suffix == "" { // the first pass warms the file and the processes
			continue
		}
		sent, cpu := float64(each)*float64(conns), after.CPUTime()-before.CPUTime()
		s.add(way.suffix, map[string]any{"cmd": "sendfile", "mb_s": sent / 1e6 / wall, "bytes": sent, "wall_s": wall,
			"broker_cpu_s": cpu, "broker_cores": cpu / wall, "broker_cpu_s_per_gb": cpu / sent * 1e9})
	}
	return nil
}

// readCopied reads as kbench fetch does, through 256 KiB.
func readCopied(c *net.TCPConn, n int64) error {
	b := make([]byte, 256<<10)
	for n > 0 {
		got, err := c.Read(b)
		if err != nil {
			return err
		}
		n -= int64(got)
	}
	return nil
}

// readDropped has the kernel drop what comes (MSG_TRUNC, see tcp(7)), as kbench fetch -drop does.
func readDropped(c *net.TCPConn, n int64) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for n > 0 {
		var got int
		var readErr error
		if err := raw.Read(func(fd uintptr) bool {
			got, _, readErr = syscall.Recvfrom(int(fd), b, syscall.MSG_TRUNC)
			return readErr != syscall.EAGAIN
		}); err != nil {
			return err
		}
		switch {
		case readErr == syscall.EINTR:
		case readErr != nil:
			return readErr
		case got == 0:
			return io.ErrUnexpectedEOF
		default:
			n -= int64(got)
		}
	}
	return nil
}
