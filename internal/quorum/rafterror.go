package quorum

import (
	"fmt"
	"log/slog"
	"runtime"
)

// A raftPanic is what raft's logger throws when an invariant of raft's does not hold.
type raftPanic string

// recoverRaft turns raft's panics into an error: raft knows no other way to say that its storage could not be read, or
// that another voter's messages contradict what it confirmed, as after a disk lost data. Panics of ours
// go on.
func recoverRaft(err *error) {
	switch p := recover().(type) {
	case nil:
	case raftPanic:
		*err = fmt.Errorf("raft: %s", string(p))
	case error:
		if _, bug := p.(runtime.Error); bug {
			panic(p)
		}
		*err = fmt.Errorf("raft: %w", p)
	default:
		panic(p)
	}
}

// A raftLogger writes raft's log lines to ours; those that only follow raft's steps at debug level.
type raftLogger struct{ to *slog.Logger }

func (l raftLogger) Debug(v ...any)              { l.to.Debug("raft", "says", fmt.Sprint(v...)) }
func (l raftLogger) Debugf(f string, v ...any)   { l.to.Debug("raft", "says", fmt.Sprintf(f, v...)) }
func (l raftLogger) Info(v ...any)               { l.Debug(v...) }
func (l raftLogger) Infof(f string, v ...any)    { l.Debugf(f, v...) }
func (l raftLogger) Warning(v ...any)            { l.to.Warn("raft", "says", fmt.Sprint(v...)) }
func (l raftLogger) Warningf(f string, v ...any) { l.to.Warn("raft", "says", fmt.Sprintf(f, v...)) }
func (l raftLogger) Error(v ...any)              { l.to.Error("raft", "says", fmt.Sprint(v...)) }
func (l raftLogger) Errorf(f string, v ...any)   { l.to.Error("raft", "says", fmt.Sprintf(f, v...)) }
func (l raftLogger) Fatal(v ...any)              { panic(raftPanic(fmt.Sprint(v...))) }
func (l raftLogger) Fatalf(f string, v ...any)   { panic(raftPanic(fmt.Sprintf(f, v...))) }
func (l raftLogger) Panic(v ...any)              { panic(raftPanic(fmt.Sprint(v...))) }
func (l raftLogger) Panicf(f string, v ...any)   { panic(raftPanic(fmt.Sprintf(f, v...))) }
