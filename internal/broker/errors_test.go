package broker

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"ottla/internal/record"
	"ottla/internal/replica"
	"ottla/internal/storage"
	"ottla/internal/transport"
)

// errorCodes are the codes of all errors of the packages below, by the name of the error there. Codes: Kafka's Errors.
var errorCodes = []struct {
	name string
	err  error
	want *kerr.Error
}{
	{"replica.ErrUnknownPartition", replica.ErrUnknownPartition, kerr.UnknownTopicOrPartition},
	{"replica.ErrOpening", replica.ErrOpening, kerr.NotLeaderForPartition},
	{"replica.ErrOffsetNotAvailable", replica.ErrOffsetNotAvailable, kerr.OffsetNotAvailable},
	{"replica.ErrNotDeletable", replica.ErrNotDeletable, kerr.PolicyViolation},
	{"replica.ErrUnsupportedTimestamp", replica.ErrUnsupportedTimestamp, kerr.UnsupportedVersion},
	{"replica.ErrClosed", replica.ErrClosed, kerr.NotLeaderForPartition},
	{"replica.NotLeaderError", &replica.NotLeaderError{Leader: 2}, kerr.NotLeaderForPartition},
	{"replica.LeaderEpochError", &replica.LeaderEpochError{Requested: 1, Known: 2}, kerr.FencedLeaderEpoch},
	{"replica.LeaderEpochError", &replica.LeaderEpochError{Requested: 3, Known: 2}, kerr.UnknownLeaderEpoch},
	{"replica.NotEnoughReplicasError", &replica.NotEnoughReplicasError{}, kerr.NotEnoughReplicas},
	{"replica.NotEnoughReplicasError", &replica.NotEnoughReplicasError{AfterAppend: true}, kerr.NotEnoughReplicasAfterAppend},
	{"replica.OfflineError", &replica.OfflineError{Err: fs.ErrPermission}, kerr.KafkaStorageError},
	{"replica.NotReplicaError", &replica.NotReplicaError{}, kerr.NotLeaderForPartition},
	{"replica.NotReplicaError", &replica.NotReplicaError{EpochNamed: true}, kerr.UnknownLeaderEpoch},
	{"replica.StaleBrokerError", &replica.StaleBrokerError{}, kerr.NotLeaderForPartition},

	{"storage.ErrClosed", storage.ErrClosed, kerr.NotLeaderForPartition},
	{"storage.OffsetOutOfRangeError", &storage.OffsetOutOfRangeError{}, kerr.OffsetOutOfRange},
	{"storage.CorruptError", &storage.CorruptError{}, kerr.CorruptMessage},
	{"storage.DirFailedError", &storage.DirFailedError{Err: fs.ErrPermission}, kerr.KafkaStorageError},
	{"storage.OutOfOrderSequenceError", &storage.OutOfOrderSequenceError{}, kerr.OutOfOrderSequenceNumber},
	{"storage.InvalidProducerEpochError", &storage.InvalidProducerEpochError{}, kerr.InvalidProducerEpoch},
	{"storage.InvalidTxnStateError", &storage.InvalidTxnStateError{}, kerr.InvalidTxnState},
	{"storage.CoordinatorFencedError", &storage.CoordinatorFencedError{}, kerr.TransactionCoordinatorFenced},
	{"storage.UnexpectedOffsetError", &storage.UnexpectedOffsetError{}, kerr.UnknownServerError}, // followers' own; no client causes it
	{"storage.TooLargeError", &storage.TooLargeError{}, kerr.RecordListTooLarge},

	{"record.CorruptError", &record.CorruptError{}, kerr.CorruptMessage},
	{"record.InvalidRecordError", &record.InvalidRecordError{}, kerr.InvalidRecord},
	{"record.InvalidTimestampError", &record.InvalidTimestampError{}, kerr.InvalidTimestamp},
	{"record.TooLargeError", &record.TooLargeError{}, kerr.MessageTooLarge},
	{"record.UnsupportedCodecError", &record.UnsupportedCodecError{}, kerr.UnsupportedCompressionType},

	{"a broken connection", &transport.ConnectionError{Err: net.ErrClosed}, kerr.NotController},
	{"no controller", errNoController, kerr.NotController},
	{"time over", context.DeadlineExceeded, kerr.RequestTimedOut},
	{"connection gone", context.Canceled, kerr.RequestTimedOut},
	{"time over, of one that is not active", fmt.Errorf("%w (last: %w)", context.DeadlineExceeded, kerr.NotController), kerr.NotController},
	{"Kafka's own", kerr.PolicyViolation, kerr.PolicyViolation},
	{"refusal", refusal(kerr.InvalidRequest, "no"), kerr.InvalidRequest},
	{"anything else", errors.New("a bug"), kerr.UnknownServerError},
}

func TestErrorCodes(t *testing.T) {
	for _, test := range errorCodes {
		for _, err := range []error{test.err, fmt.Errorf("append to t-0: %w", test.err)} {
			if got := kafkaError(err); got != test.want {
				t.Errorf("%s is %s, want %s", test.name, got.Message, test.want.Message)
			}
		}
	}
	if got := code(nil); got != 0 {
		t.Errorf("no error is code %d, want 0", got)
	}
}

// Whoever adds an error to a package below has to say here what clients see of it.
func TestErrorCodesAreComplete(t *testing.T) {
	known := map[string]bool{}
	for _, test := range errorCodes {
		known[test.name] = true
	}
	for _, pkg := range []string{"replica", "storage", "record"} {
		for _, name := range exportedErrors(t, filepath.Join("..", pkg)) {
			if !known[pkg+"."+name] {
				t.Errorf("%s.%s has no error code", pkg, name)
			}
		}
	}
}

// exportedErrors lists the error types and error values that a package declares.
func exportedErrors(t *testing.T, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s (%v)", dir, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "Error" && n.Recv != nil {
					if star, ok := n.Recv.List[0].Type.(*ast.StarExpr); ok && ast.IsExported(star.X.(*ast.Ident).Name) {
						names = append(names, star.X.(*ast.Ident).Name)
					}
				}
				return false
			case *ast.ValueSpec:
				for _, name := range n.Names {
					if strings.HasPrefix(name.Name, "Err") && name.IsExported() {
						names = append(names, name.Name)
					}
				}
			}
			return true
		})
	}
	return names
}
