package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestNewBudget(t *testing.T) {
	for _, test := range []struct{ queued, memory, want int64 }{
		{queued: -1, memory: 4 << 30, want: 1 << 30},
		{queued: 8 << 20, memory: 4 << 30, want: 8 << 20},
		{queued: 1000, memory: 4 << 30, want: 1 << 20},
	} {
		if got := NewBudget(test.queued, test.memory).Capacity(); got != test.want {
			t.Errorf("queued.max.request.bytes %d of %d gives %d, want %d", test.queued, test.memory, got, test.want)
		}
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		p := &pool{capacity: 100}
		var first, second, third claim
		first.enter(p)
		second.enter(p)
		take := func(c *claim, n int64) (done chan struct{}) {
			done = make(chan struct{})
			go func() {
				if err := c.take(ctx, p, n); err != nil {
					t.Errorf("take: %v", err)
				}
				close(done)
			}()
			synctest.Wait()
			return done
		}
		has := func(c chan struct{}) bool {
			synctest.Wait()
			select {
			case <-c:
				return true
			default:
				return false
			}
		}

		if !has(take(&first, 60)) || !has(take(&second, 40)) {
			t.Fatal("what is free was not given")
		}
		waits := take(&second, 10)
		behind := take(&third, 5)
		if has(waits) || has(behind) {
			t.Fatal("more than there is was given")
		}
		if !has(take(&first, 1000)) {
			t.Fatal("the oldest could not overdraw")
		}
		first.settle() // complete, but still held
		if !has(waits) {
			t.Fatal("the next oldest could not overdraw")
		}
		if has(behind) {
			t.Fatal("the third overdrew")
		}
		first.release()
		if !has(behind) {
			t.Fatal("what became free was not given")
		}
		second.release()
		third.release()
		if used := p.used.Load(); used != 0 {
			t.Errorf("%d bytes are lost", used)
		}
	})
}

func TestBudgetGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{capacity: 100}
		var holder, waiter claim
		holder.enter(p)
		if err := holder.take(t.Context(), p, 100); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := waiter.take(ctx, p, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("take: %v", err)
		}
		waiter.release()
		holder.release()
		if used, waiting := p.used.Load(), p.waiting.Load(); used != 0 || waiting != 0 {
			t.Errorf("%d bytes, %d waiting", used, waiting)
		}
	})
}

// TestBudgetAtRandom has many claims grow at a time: all of them must end, and nothing be lost.
func TestBudgetAtRandom(t *testing.T) {
	p := &pool{capacity: 1000}
	var all sync.WaitGroup
	for i := range 16 {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		all.Go(func() {
			for range 300 {
				var c claim
				for range 1 + rng.IntN(4) {
					if err := c.take(context.Background(), p, int64(rng.IntN(400))); err != nil {
						t.Error(err)
					}
				}
				if rng.IntN(2) == 0 {
					c.settle()
				}
				c.release()
			}
		})
	}
	all.Wait()
	if used, waiting, open := p.used.Load(), p.waiting.Load(), p.open.Len(); used != 0 || waiting != 0 || open != 0 {
		t.Errorf("%d bytes, %d waiting, %d open", used, waiting, open)
	}
}

func TestBufferClass(t *testing.T) {
	for n := 1; n <= 1<<maxBufferShift; n += 1 + n/37 {
		class, size := bufferClass(n)
		if size < n || n > 1<<minBufferShift && size > n+n/4+1 {
			t.Fatalf("%d bytes get %d", n, size)
		}
		if again, same := bufferClass(size); again != class || same != size {
			t.Fatalf("%d bytes are of class %d, its size %d of class %d with %d", n, class, size, again, same)
		}
	}
	if class, size := bufferClass(1<<maxBufferShift + 1); class != -1 || size != 1<<maxBufferShift+1 {
		t.Errorf("above the largest class: %d, %d", class, size)
	}
	if class, _ := bufferClass(1 << maxBufferShift); class != bufferClasses-1 {
		t.Errorf("the largest class is %d of %d", class, bufferClasses)
	}
}
