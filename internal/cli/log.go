package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"ottla/internal/storage"
	"ottla/internal/vfs"
)

// The log commands read files, not brokers. They change nothing.

func (a *app) logs() *cobra.Command {
	return group("log", "Files of a log directory, offline: dump, verify.", a.logDump(), a.logVerify())
}

// A VerifyReport is what was read of log directories and what is wrong there.
type VerifyReport struct {
	Partitions int             `json:"partitions"`
	Segments   int             `json:"segments" doc:"and snapshots of the metadata log"`
	Batches    int             `json:"batches"`
	Records    int             `json:"records"`
	Bytes      int64           `json:"bytes"`
	Findings   []VerifyFinding `json:"findings"`
}

// A VerifyFinding is something that no correct broker left behind.
type VerifyFinding struct {
	Path     string `json:"path"`
	Position *int64 `json:"position,omitempty" doc:"bytes from the start of the file"`
	Offset   *int64 `json:"offset,omitempty" doc:"the offset that was due there"`
	Reason   string `json:"reason"`
	Loss     bool   `json:"loss" doc:"records are unreadable or missing; the rest a broker puts right when it starts"`
}

func (f VerifyFinding) String() string {
	s := f.Path
	if f.Position != nil {
		s += fmt.Sprintf(" at byte %d", *f.Position)
	}
	if f.Offset != nil {
		s += fmt.Sprintf(", offset %d", *f.Offset)
	}
	if f.Loss {
		return s + ": LOSS: " + f.Reason
	}
	return s + ": " + f.Reason
}

func (r *VerifyReport) add(f storage.Finding) {
	finding := VerifyFinding{Path: f.Path, Reason: f.Reason, Loss: f.Loss}
	if f.Pos >= 0 {
		finding.Position = &f.Pos
	}
	if f.Offset >= 0 {
		finding.Offset = &f.Offset
	}
	r.Findings = append(r.Findings, finding)
}

func (r *VerifyReport) count(v storage.Verified) {
	r.Partitions += v.Partitions
	r.Segments += v.Segments
	r.Batches += v.Batches
	r.Records += v.Records
	r.Bytes += v.Bytes
}

func (r *VerifyReport) verdict() string {
	if len(r.Findings) == 0 {
		return "sound"
	}
	losses := 0
	for _, f := range r.Findings {
		if f.Loss {
			losses++
		}
	}
	if losses == 0 {
		return plenty(int64(len(r.Findings)), "finding") + ", no records lost"
	}
	return fmt.Sprintf("%s, records lost in %d of them", plenty(int64(len(r.Findings)), "finding"), losses)
}

func (a *app) logVerify() *cobra.Command {
	return a.leaf(leaf{
		use: "verify DIR…", short: "Check every batch, index, snapshot and checkpoint of log directories; exit 10 if anything is wrong.",
		example: "ottla log verify ottla-data\nottla log verify /var/lib/kafka/hello-0 -o json\nottla log verify ottla-data/hello-0/00000000000000000000.log",
		args:    cobra.MinimumNArgs(1), result: VerifyReport{},
		run: func(ctx context.Context, args []string) error {
			r := VerifyReport{Findings: []VerifyFinding{}}
			for _, path := range args {
				a.warnIfInUse(path)
				v, err := storage.VerifyPath(vfs.OS, path, r.add)
				if err != nil {
					return fmt.Errorf("verify %s: %w", path, err)
				}
				r.count(v)
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			err := a.showOne(r, r.verdict(), r.write)
			if err == nil && len(r.Findings) > 0 {
				err = &conditionError{"log verify: " + r.verdict()}
			}
			return err
		},
	})
}

func (r *VerifyReport) write(w io.Writer) {
	for _, f := range r.Findings {
		fmt.Fprintln(w, f)
	}
	fmt.Fprintf(w, "%s, %s, %s, %s, %s: %s\n", plenty(int64(r.Partitions), "partition"), plenty(int64(r.Segments), "segment"),
		plentyOf(int64(r.Batches), "batch", "batches"), plenty(int64(r.Records), "record"), size(float64(r.Bytes)), r.verdict())
}

// plentyOf is plenty for words with a plural of their own.
func plentyOf(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

// warnIfInUse says so if a broker runs on a log directory. It is of no matter if that can not be told.
func (a *app) warnIfInUse(dir string) {
	file := filepath.Join(dir, ".lock")
	if _, err := vfs.OS.Stat(file); err != nil {
		return
	}
	lock, err := vfs.OS.Lock(file)
	if errors.Is(err, vfs.ErrLocked) {
		a.note("a broker is at work in %s: what it is just writing may look wrong", dir)
	}
	if err == nil {
		_ = lock.Close() // nothing was written
	}
}
