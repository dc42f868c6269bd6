package transport

import (
	"math/bits"
	"sync"
)

// Buffers come in classes: four steps to each doubling, so that at most a fifth of
// a buffer is wasted.
const (
	minBufferShift = 10 // 1 KiB
	maxBufferShift = 23 // buffers above 8 MiB are left to the garbage collector
	bufferSteps    = 4
	bufferClasses  = (maxBufferShift-minBufferShift)*bufferSteps + 1
)

// A buffer is pooled memory. It is handed on by pointer so that putting it back
// allocates nothing.
type buffer struct{ b []byte }

var buffers [bufferClasses]sync.Pool

// bufferClass returns the class that holds n bytes and its size; class -1 with
// size n if n is too large to be pooled.
func bufferClass(n int) (class, size int) {
	if n <= 1<<minBufferShift {
		return 0, 1 << minBufferShift
	}
	if n > 1<<maxBufferShift {
		return -1, n
	}
	shift := bits.Len(uint(n-1)) - 1 // 1<<shift < n <= 1<<(shift+1)
	step := 1 << shift / bufferSteps
	steps := (n - 1<<shift + step - 1) / step
	return (shift-minBufferShift)*bufferSteps + steps, 1<<shift + steps*step
}

// getBuffer returns an empty buffer whose capacity is the size of n's class. Its
// bytes beyond the length are not zeroed.
func getBuffer(n int) *buffer {
	class, size := bufferClass(n)
	if class < 0 {
		return &buffer{make([]byte, 0, size)}
	}
	if buf, ok := buffers[class].Get().(*buffer); ok {
		return buf
	}
	return &buffer{make([]byte, 0, size)}
}

// putBuffer takes buf back. A buffer that append has grown past its class is dropped.
func putBuffer(buf *buffer) {
	class, size := bufferClass(cap(buf.b))
	if class < 0 || size != cap(buf.b) {
		return
	}
	buf.b = buf.b[:0]
	buffers[class].Put(buf)
}
