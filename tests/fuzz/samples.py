"""Valid files of every kind, from which mutations are made. They are so small that a case takes milliseconds."""

from __future__ import annotations

from collections.abc import Mapping

SWF = """\
; Computer: made up
; MaxProcs: 8
; Queue: 1 - a
1 0 -1 100 3 -1 -1 3 100 -1 1 7 1 14 2 1 -1 -1
2 1 -1 50 2 -1 100 2 60 2048 1 7 1 14 2 1 -1 -1
3 2 -1 20 1 -1 -1 1 90 -1 1 8 1 15 2 1 -1 -1
4 3 -1 10.5 1 -1 -1 -1 200 -1 1 8 1 15 2 1 -1 -1
"""

FRONTIER = """\
; MaxProcs: 64
; UnixStartTime: 1700000000
1 0 5 100 589824 -1 -1 -1 200 -1 1 7 1 14 2 1 -1 -1 16 150 frontier:excl:2x8
2 1 -1 50 2 -1 -1 -1 60 -1 1 7 1 14 2 1 -1 -1 -1 -1 frontier:shared:1x4
3 2 9 20 1 -1 -1 1 90 -1 1 8 1 15 2 1 -1 -1 8 40 frontier:excl:8x8
"""

OWN = """\
# cpsched-trace 1
# system: eurora
# seed: 7
job,submit_s,run_s,walltime_s,units,distinct,exclusive,partition,user,name,queue,account,cores,memory_mib,gpus
1,0,412,14400,4,0,0,,u017,relax12,parallel,,16,8192,2
2,10,30,60,2,1,0,,u017,"a ""b"", c",debug,phys,1,100,0
3,11,500,14400,1,0,1,gpu,u018,relax13,parallel,,16,8192,2
"""

SACCT = """\
JobIDRaw|User|Account|Partition|Submit|Start|End|Timelimit|NNodes|NCPUS|ReqTRES|AllocTRES|JobName
7|ada|phys|main|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:11:00|00:30:00|1|8|cpu=8|cpu=8,mem=62.50G,node=1|relax
8|bob|phys|main|2026-01-01T00:00:10|2026-01-01T00:02:00|2026-01-01T00:03:00|1-00:00:00|2|16||cpu=16,gres/gpu=2|cfd
9|bob|phys|main|2026-01-01T00:00:20|Unknown|Unknown|UNLIMITED|1|1|||never ran
"""

XDMOD = """\
165381|165381|phillips|crumpet|coconut|chaff|chaff|45789|chaff|196224|2016-12-27T20:12:01|2016-12-27T20:12:01|\
2016-12-27T20:12:01|2017-01-01T20:12:27|5-00:00:26|1:0|TIMEOUT|8|64|64|8000Mn|cpu=64,mem=62.50G,node=8|\
billing=64,cpu=64,mem=62.50G,node=8|5-00:00:00|cpn-f13-03-[01-02]|3eb3511
"""

PBS = """\
11/23/2026 09:41:04;Q;7.vm;user=ada group=ada account="a b" project=p jobname=relax queue=workq ctime=1795426864 \
qtime=1795426864 etime=1795426864 Resource_List.ncpus=4 Resource_List.select=2:ncpus=2 Resource_List.walltime=01:00:00
11/23/2026 09:43:54;E;7.vm;user=ada group=ada account="a b" project=p jobname=relax queue=workq ctime=1795426864 \
qtime=1795426864 etime=1795426864 start=1795426881 exec_host=n1/0*2+n2/0*2 exec_vnode=(n1:ncpus=2)+(n2:ncpus=2) \
Resource_List.ncpus=4 Resource_List.place=scatter Resource_List.select=2:ncpus=2 Resource_List.walltime=01:00:00 \
session=822 end=1795427034 Exit_status=0 resources_used.walltime=00:02:33 run_count=1
11/23/2026 09:44:00;E;8[3].vm;user=bob group=bob project=p jobname=cfd queue=workq ctime=1795426864 qtime=1795426864 \
etime=1795426870 start=1795426881 exec_host=n1/0 exec_vnode=(n1:ncpus=1) Resource_List.select=1:ncpus=1:mem=1gb \
session=823 end=1795427040 Exit_status=0 run_count=1
11/23/2026 09:44:01;D;9.vm;requestor=ada@vm
"""

SYSTEM = """\
# A small machine.
name: small
summary: two kinds of nodes
resources: [cores, memory_mib, gpus]
node_types:
  thin: { count: 3, prefix: t, each: { cores: 8, memory_mib: 65536 } }
  fat: { count: 1, each: { cores: 48, memory_mib: 1048576, gpus: 4 } }
partitions:
  "1": [thin]
  both: [thin, fat]
units: { rule: gcd, cores_per_node: 4, memory: requested }
"""

NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=16 CPUTot=16 CPULoad=0.00
   AvailableFeatures=cpu,rack1
   Gres=gpu:a100:2(S:0-1),mps:400
   OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC
   RealMemory=16384 AllocMem=0 MemSpecLimit=100
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main,short
   Reason=disk [root@2026-01-01T00:00:00]

NodeName=n2 CPUTot=8 RealMemory=1000 Gres=(null) State=IDLE Partitions=main
"""

SINFO = """\
NODELIST|PARTITION|CPUS|MEMORY|AVAIL_FEATURES|GRES|STATE
n[1-2]|main*|16|16384|cpu,rack1|(null)|idle
n[2-3],gpu07|gpu|8+|1000|gpu|gpu:2|down*
"""

POLICY = """\
accounts:
  physics: { shares: 80, users: [7, 14], limits: { MaxJobs: 4, GrpTRES: cpu=6 } }
  laser: { shares: 3, parent: physics, users: { u8: { shares: parent, limits: { MaxWall: "2:00:00" } } } }
qos:
  normal: { priority: 10, limits: { MaxTRESPU: "cpu=32,mem=2G", GrpTRESMins: cpu=9000, GrpTRESRunMins: cpu=500 } }
partitions: { "1": { tier: 2, factor: 10, qos: normal } }
priority: { fair_share: 1000, age: 10, max_age: "1-00:00:00", tres: { cpu: 2.5 } }
fair_share: { algorithm: classic, half_life_days: 0.5 }
users: { others: spread, qos: normal }
enforce: [limits, safe]
"""

ASSOCIATIONS = """\
Cluster|Account|User|Partition|Share|Priority|GrpTRES|MaxJobs|MaxWall|Def QOS|ParentName
lab|root|||1||||||
lab|physics|||80|5|cpu=64||||root
lab|physics|7||parent|||2|1-00:00:00|long|
"""

SETTINGS = """\
mode: shadow
adapter: mock
state_dir: STATE
options: { days: 0.1, seed: 3, speed: 600.0 }
policy:
  dispatcher: easy
  dispatcher_settings: { allocation: first }
  predictor: profile
  predictor_settings: { remember: 7 }
  overrun: double
cycle: { interval_s: 0.05, max_commands: 10 }
start: { timeout_s: 600, adopt: true }
lease:
  duration_s: 130.0
metrics: { port: 0, host: 127.0.0.1 }
journal:
  max_mib: 64
"""

WAITS = '{"debug": 1800, "parallel": 3600.5, "2": 60}\n'

TRACES: Mapping[str, str] = {
    "t.swf": SWF,
    "f.swf": FRONTIER,
    "t.csv": OWN,
    "t.sacct": SACCT,
    "x.log": XDMOD,
    "20261123": PBS,
}
