package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs testdata: each step prints the partition as it is afterwards. The local replica is broker 1.
//
//	new hw= leo=
//	become leader= epoch= pepoch= replicas=(…) isr=(…) [end=]
//	append leo=
//	fetch id= offset= [start=] [epoch=] [leo=]
//	shrink | recheck
//	commit pepoch= isr=(…) | refuse
//	followed leo= hw= | truncated leo=
//	env [now=] [minisr=] [fenced=(…)]
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := script{env: Env{LagMax: 30000, MinISR: 1}}
		s.env.Eligible = func(id int32, epoch int64) bool { return !slices.Contains(s.fenced, id) }
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	p      *Partition
	env    Env
	fenced []int32
	last   *Proposal
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	integer := func(key string, or int64) int64 {
		d.MaybeScanArgs(t, key, &or)
		return or
	}
	ids := func(key string) []int32 {
		var out []int32
		for _, arg := range d.CmdArgs {
			if arg.Key != key {
				continue
			}
			for _, v := range arg.Vals {
				var id int32
				fmt.Sscan(v, &id)
				out = append(out, id)
			}
		}
		return out
	}
	registration := func(or Registration) Registration {
		r := Registration{Leader: int32(integer("leader", int64(or.Leader))), LeaderEpoch: int32(integer("epoch", int64(or.LeaderEpoch))),
			PartitionEpoch: int32(integer("pepoch", int64(or.PartitionEpoch))), Replicas: ids("replicas"), ISR: ids("isr")}
		if r.Replicas == nil {
			r.Replicas = or.Replicas
		}
		return r
	}
	var out strings.Builder
	switch d.Cmd {
	case "new":
		s.p = New(1, integer("hw", 0), integer("leo", 0))
	case "become":
		if !s.p.Become(registration(s.p.reg), integer("end", s.p.leo), s.p.leo, &s.env) {
			out.WriteString("stale\n")
		}
	case "append":
		s.p.Appended(integer("leo", 0), &s.env)
	case "fetch":
		f := Fetch{Replica: int32(integer("id", 0)), Offset: integer("offset", 0), LogStartOffset: integer("start", 0), BrokerEpoch: integer("epoch", -1)}
		_, join, err := s.p.Fetched(f, integer("leo", s.p.leo), &s.env)
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		s.propose(&out, join)
	case "shrink":
		s.propose(&out, s.p.Shrink(&s.env))
	case "recheck":
		s.p.Recheck(&s.env)
	case "commit":
		s.p.Committed(registration(s.p.reg), &s.env)
	case "refuse":
		s.p.Refused(s.last)
	case "followed":
		s.p.Followed(integer("leo", 0), integer("hw", 0))
	case "truncated":
		s.p.Truncated(integer("leo", 0))
	case "env":
		s.env.Now, s.env.MinISR, s.fenced = integer("now", s.env.Now), int(integer("minisr", int64(s.env.MinISR))), ids("fenced")
		return "ok"
	default:
		t.Fatalf("unknown step %s", d.Cmd)
	}
	s.print(&out)
	return out.String()
}

func (s *script) propose(out *strings.Builder, p *Proposal) {
	if p != nil {
		s.last = p
		fmt.Fprintf(out, "propose %v at epochs %d/%d\n", p.ISR, p.LeaderEpoch, p.PartitionEpoch)
	}
}

func (s *script) print(out *strings.Builder) {
	p := s.p
	fmt.Fprintf(out, "%s epochs %d/%d isr %v hw %d leo %d", p.role, p.reg.LeaderEpoch, p.reg.PartitionEpoch, p.reg.ISR, p.hw, p.leo)
	if p.proposed != nil {
		fmt.Fprintf(out, " proposed %v", p.proposed.ISR)
	}
	for _, f := range p.followers {
		fmt.Fprintf(out, " | %d: leo %d caught up %d", f.ID, f.LogEndOffset, f.LastCaughtUp)
	}
	out.WriteString("\n")
}

func TestDiverge(t *testing.T) {
	for _, c := range []struct {
		name          string
		last          int32
		offset, start int64
		leader        EpochEnd
		want          Divergence
	}{
		{"prefix", 3, 100, 0, EpochEnd{3, 150}, Same},
		{"same end", 3, 100, 0, EpochEnd{3, 100}, Same},
		{"longer in the same epoch", 3, 1000, 0, EpochEnd{3, 500}, Diverged},
		{"epoch the leader does not have", 2, 50, 0, EpochEnd{1, 50}, Diverged},
		{"epoch newer than the leader's", 9, 50, 0, EpochEnd{-1, -1}, EpochNewer},
		{"deleted at the leader", 1, 10, 20, EpochEnd{1, 50}, BeforeStart},
		// Apache's ex-leader, checkpoint "1 0", no record: it must not be told to truncate, or it loops.
		{"epoch without a record", 1, 0, 0, EpochEnd{1, 0}, Same},
	} {
		if got := Diverge(c.last, c.offset, c.start, c.leader); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestTruncateTo(t *testing.T) {
	for _, c := range []struct {
		name        string
		leader, own EpochEnd
		leo, want   int64
	}{
		{"leader's epoch ended before", EpochEnd{1, 20}, EpochEnd{1, 25}, 30, 20},
		{"own epoch ended before", EpochEnd{1, 20}, EpochEnd{1, 10}, 30, 10},
		{"an older epoch of our own (KIP-279)", EpochEnd{2, 20}, EpochEnd{1, 12}, 30, 12},
		{"epoch not known here", EpochEnd{5, 40}, EpochEnd{-1, -1}, 30, 30},
		{"everything", EpochEnd{0, 0}, EpochEnd{-1, -1}, 30, 0},
	} {
		if got := TruncateTo(c.leader, c.own, c.leo); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
