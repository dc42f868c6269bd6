package wake

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// A job notes how it was done.
type job struct {
	name string
	did  func(string)
}

func (j job) Run() { j.did("run " + j.name) }
func (j job) Try() { j.did("try " + j.name) }

func TestList(t *testing.T) {
	const many = 20 // more than a List has room for without allocating
	for _, c := range []struct {
		name string
		wake func(*List)
		job  func(i int) bool // whether the i'th makes work
		did  map[string]string
	}{
		{"Go has goroutines do all work", (*List).Go, func(i int) bool { return i%5 == 0 }, map[string]string{"0": "run", "5": "run", "10": "run", "15": "run"}},
		{"Try does the first work itself", (*List).Try, func(i int) bool { return i >= 18 }, map[string]string{"18": "try", "19": "run"}},
		{"Try of those who make no work", (*List).Try, func(int) bool { return false }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l List
				for range 2 { // a list is used again
					var woken []int
					did := make(chan string, many)
					for i := range many {
						l.Add(func() Work {
							woken = append(woken, i)
							if !c.job(i) {
								return nil
							}
							return job{fmt.Sprint(i), func(s string) { did <- s }}
						})
					}
					c.wake(&l)
					synctest.Wait()
					close(did)
					if !slices.IsSorted(woken) || len(woken) != many {
						t.Errorf("woke %v", woken)
					}
					got := 0
					for s := range did {
						var how, who string
						fmt.Sscan(s, &how, &who)
						if c.did[who] != how {
							t.Errorf("%s, want %q", s, c.did[who])
						}
						got++
					}
					if got != len(c.did) {
						t.Errorf("%d jobs done, want %d", got, len(c.did))
					}
				}
				c.wake(&l) // it is empty
			})
		})
	}
}

func TestListAllocates(t *testing.T) {
	var l List
	f := Func(func() Work { return nil })
	if n := testing.AllocsPerRun(100, func() {
		for range 8 {
			l.Add(f)
		}
		l.Try()
	}); n > 0 {
		t.Errorf("waking eight allocates %v times", n)
	}
}
