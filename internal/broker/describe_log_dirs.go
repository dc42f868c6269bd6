package broker

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/replica"
)

// describeLogDirs tells what is in each log directory of this broker, and how full its file system is (KIP-113, KIP-827).
func (b *Broker) describeLogDirs(ctx context.Context, req *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	resp.Dirs = []kmsg.DescribeLogDirsResponseDir{}
	if !b.authorizeCluster(ctx, auth.Describe) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp
	}
	for _, info := range b.replicas.DescribeDirs(wantedLogs(req)) {
		resp.Dirs = append(resp.Dirs, describeDir(&info))
	}
	return resp
}

// wantedLogs says which partitions the request asks for; nil is all.
func wantedLogs(req *kmsg.DescribeLogDirsRequest) func(topic string, partition int32) bool {
	if req.Topics == nil {
		return nil
	}
	wanted := map[string][]int32{}
	for i := range req.Topics {
		wanted[req.Topics[i].Topic] = req.Topics[i].Partitions
	}
	return func(topic string, partition int32) bool { return slices.Contains(wanted[topic], partition) }
}

func describeDir(info *replica.DirInfo) kmsg.DescribeLogDirsResponseDir {
	d := kmsg.NewDescribeLogDirsResponseDir()
	d.Dir, d.TotalBytes, d.UsableBytes = absolute(info.Path), info.Total, info.Free
	d.Topics = []kmsg.DescribeLogDirsResponseDirTopic{}
	if info.Err != nil {
		d.ErrorCode = kerr.KafkaStorageError.Code
		return d
	}
	at := map[string]int{}
	for _, r := range info.Replicas {
		i, ok := at[r.Topic]
		if !ok {
			i, at[r.Topic] = len(d.Topics), len(d.Topics)
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = r.Topic
			d.Topics = append(d.Topics, t)
		}
		p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		p.Partition, p.Size, p.OffsetLag = r.Partition, r.Bytes, r.Lag
		d.Topics[i].Partitions = append(d.Topics[i].Partitions, p)
	}
	return d
}

// absolute is the path as clients are told of it.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
