package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// A Codec is a compression codec, as the attributes of a batch number it.
type Codec int8

const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
	// Producer is no codec of a batch: as compression.type it keeps the one the producer chose.
	Producer Codec = -1
)

var codecNames = map[Codec]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd", Producer: "producer"}

// String returns the codec's name in Kafka's configuration.
func (c Codec) String() string {
	if name, ok := codecNames[c]; ok {
		return name
	}
	return fmt.Sprintf("Codec(%d)", int8(c))
}

// ParseCodec reads a value of compression.type; "uncompressed" is another word for "none".
func ParseCodec(name string) (Codec, error) {
	if name == "uncompressed" {
		return None, nil
	}
	for c, n := range codecNames {
		if n == name {
			return c, nil
		}
	}
	return None, fmt.Errorf("%q is no compression type; use none, gzip, snappy, lz4, zstd or producer", name)
}

func (c Codec) known() bool { return c >= None && c <= Zstd }

// Compression is a codec and how hard it tries.
type Compression struct {
	Codec Codec
	// Level is in the codec's own range (compression.gzip.level 1–9, compression.lz4.level 1–17,
	// compression.zstd.level -131072–22); 0 and gzip's -1 mean the codec's default. Levels that our
	// codecs do not tell apart give the nearest one.
	Level int
}

// The largest zstd windows. Windows up to smallZstdWindow, which the zstd format asks every decoder to take and
// which levels up to 19 stay within, cost their memory per decoder in use. Larger ones, of
// levels 20 to 22, are decoded one at a time in the whole process.
const (
	smallZstdWindow = 8 << 20
	largeZstdWindow = 128 << 20
)

// errLargeWindow tells that a zstd frame wants more than smallZstdWindow.
var errLargeWindow = errors.New("zstd window above 8 MiB")

// A decompressor reads one compressed block of records. The types behind it are pooled: reset
// brings one to the start of src, release lets go of src.
type decompressor interface {
	io.Reader
	reset(src []byte) error
	release()
}

var decompressors = [...]sync.Pool{
	Gzip:   {New: func() any { return new(gzipReader) }},
	Snappy: {New: func() any { return new(snappyReader) }},
	LZ4:    {New: func() any { return newLZ4Reader() }},
	Zstd:   {New: func() any { return newZstdReader(smallZstdWindow) }},
}

// largeZstd is held by the one decoder of large windows at work.
var largeZstd = make(chan struct{}, 1)

// openDecompressor returns a decompressor at the start of src, to be given to closeDecompressor.
func openDecompressor(c Codec, src []byte) (decompressor, error) {
	d := decompressors[c].Get().(decompressor)
	err := d.reset(src)
	if err == nil {
		return d, nil
	}
	closeDecompressor(c, d)
	if err != errLargeWindow {
		return nil, corrupt("%s: %v", c, err)
	}
	largeZstd <- struct{}{}
	d = newZstdReader(largeZstdWindow)
	if err := d.reset(src); err != nil {
		closeDecompressor(c, d)
		return nil, corrupt("%s: %v", c, err)
	}
	return d, nil
}

func closeDecompressor(c Codec, d decompressor) {
	d.release()
	if z, ok := d.(*zstdReader); ok && z.window > smallZstdWindow {
		z.d.Close()
		<-largeZstd
		return
	}
	decompressors[c].Put(d)
}

type gzipReader struct {
	src bytes.Reader
	z   gzip.Reader
}

func (r *gzipReader) Read(p []byte) (int, error) { return r.z.Read(p) }
func (r *gzipReader) release()                   { r.src.Reset(nil) }
func (r *gzipReader) reset(src []byte) error {
	r.src.Reset(src)
	return r.z.Reset(&r.src)
}

type lz4Reader struct {
	src bytes.Reader
	z   *lz4.Reader
}

func newLZ4Reader() *lz4Reader {
	r := new(lz4Reader)
	r.z = lz4.NewReader(&r.src)
	return r
}

func (r *lz4Reader) Read(p []byte) (int, error) { return r.z.Read(p) }
func (r *lz4Reader) release()                   { r.src.Reset(nil); r.z.Reset(&r.src) }
func (r *lz4Reader) reset(src []byte) error {
	r.src.Reset(src)
	r.z.Reset(&r.src)
	return nil
}

type zstdReader struct {
	src    bytes.Reader
	d      *zstd.Decoder
	window uint64 // largest that d takes, in bytes
}

// newZstdReader returns a decoder that works in the goroutine that reads from it.
func newZstdReader(window uint64) *zstdReader {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(window)) // as streams are read, both bound the window only
	if err != nil {
		panic(fmt.Sprintf("record: zstd decoder options for window %d: %v", window, err)) // constants of ours
	}
	return &zstdReader{d: d, window: window}
}

func (r *zstdReader) Read(p []byte) (int, error) { return r.d.Read(p) }

func (r *zstdReader) release() {
	r.src.Reset(nil)
	// The error says only that there is nothing to read.
	_ = r.d.Reset(nil)
}

func (r *zstdReader) reset(src []byte) error {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return err
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window > largeZstdWindow {
		return fmt.Errorf("window of %d bytes is above %d", window, largeZstdWindow)
	}
	if window > r.window {
		return errLargeWindow
	}
	r.src.Reset(src)
	return r.d.Reset(&r.src)
}

// A compressor writes one compressed block of records.
type compressor interface {
	io.WriteCloser
	Reset(io.Writer)
}

// compressors holds a *sync.Pool of idle compressors per effective Compression; those number below 30.
var compressors sync.Map

// compress calls write with a writer whose output, compressed, is appended to dst.
func compress(dst []byte, c Compression, write func(io.Writer) error) ([]byte, error) {
	c.Level = effectiveLevel(c)
	v, ok := compressors.Load(c)
	if !ok {
		v, _ = compressors.LoadOrStore(c, new(sync.Pool))
	}
	pool := v.(*sync.Pool)
	w, ok := pool.Get().(compressor)
	if !ok {
		w = newCompressor(c)
	}
	buf := bytes.NewBuffer(dst)
	w.Reset(buf)
	err := write(w)
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	w.Reset(io.Discard) // lets go of buf
	pool.Put(w)
	return buf.Bytes(), err
}

// effectiveLevel maps Kafka's level to one of the few that our codec has.
func effectiveLevel(c Compression) int {
	switch c.Codec {
	case Gzip:
		if c.Level < gzip.BestSpeed || c.Level > gzip.BestCompression {
			return gzip.DefaultCompression
		}
		return c.Level
	case LZ4:
		// Kafka's default, 9, is the fast compressor of lz4-java; so are our levels up to there.
		return max(0, min(c.Level-9, 8))
	case Zstd:
		if c.Level == 0 {
			return int(zstd.SpeedDefault)
		}
		return int(zstd.EncoderLevelFromZstd(c.Level))
	}
	return 0
}

func newCompressor(c Compression) compressor {
	switch c.Codec {
	case Gzip:
		w, err := gzip.NewWriterLevel(nil, c.Level)
		if err != nil {
			panic(fmt.Sprintf("record: gzip level %d: %v", c.Level, err)) // effectiveLevel keeps it in range
		}
		return w
	case Snappy:
		return new(snappyWriter)
	case LZ4:
		w := lz4.NewWriter(nil)
		level := lz4.Fast
		if c.Level > 0 {
			level = lz4.CompressionLevel(1 << (8 + c.Level))
		}
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.CompressionLevelOption(level)); err != nil {
			panic(fmt.Sprintf("record: lz4 level %d: %v", c.Level, err))
		}
		return w
	case Zstd:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevel(c.Level)), zstd.WithEncoderConcurrency(1),
			zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
		if err != nil {
			panic(fmt.Sprintf("record: zstd level %d: %v", c.Level, err))
		}
		return w
	}
	panic(fmt.Sprintf("record: no compressor for %s", c.Codec)) // callers check Codec.known
}
