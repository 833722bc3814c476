"""A few lines of every trace format, and their jobs."""

SWF = """; Version: 2.2
  1  0  5 100 16 -1 -1 16 200 -1 1 3 1 1 2 -1 -1 -1
  2 10  0  50  4 -1 -1 -1  -1 -1 1 -1 1 1 -1 -1 -1 -1
"""
SACCT = """JobID|JobName|User|Account|Submit|Start|End|NNodes|AllocTRES|Timelimit
7|train|eve|Vision|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T01:01:00|2|cpu=8,gres/gpu=16,node=2|1-00:00:00
7.batch|batch||Vision|2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-01T01:01:00|1|cpu=4,gres/gpu:a100=8|
8|prep|bob|Vision|2024-01-01T00:02:00|2024-01-01T00:02:00|2024-01-01T00:03:00|1|cpu=8|UNLIMITED
"""
TABLES = {
    "philly": (
        """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66,1,66,11cb48
2017-10-09 07:00:55,60,16,960,b4
""",
        [("job-3", 0.0, 60.0, 2, 8, "b4"), ("job-2", 60.0, 66.0, 1, 1, "11cb48")],
    ),
    "itp": (
        "job_id,submission_time,duration,num_gpu\nA_1,100,30,12\n",
        [("a-1", 0.0, 30.0, 2, 6, "default")],
    ),
    "muri": (
        """job_id,num_gpu,submit_time,iterations,model_name,duration,iteration_time
5,8,2000,100,bert,1,250
""",
        [("bert-5", 0.0, 25.0, 1, 8, "default")],
    ),
    "tiresias": (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n3,4,0,1,v,164,3\n",
        [("3", 0.0, 164.0, 1, 4, "default")],
    ),
    "elasticflow": (
        "job_id,submit_time,num_gpu,duration\n0,7,2,9\n",
        [("0", 0.0, 9.0, 1, 2, "default")],
    ),
    "pollux": (
        "name,time,application,num_replicas,batch_size\ncifar10-0,53,cifar10,6,2048\n",
        [("cifar10-0", 0.0, 180.0, 1, 6, "default")],
    ),
    "openb": (
        """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time
openb-pod-0000,12000,16384,1,460,V100M16|V100M32,10,20
""",
        [("openb-pod-0000", 0.0, 10.0, 1, 0, "default")],
    ),
    "swf": (
        SWF,
        [("job-1", 0.0, 100.0, 2, 8, "queue-2"), ("job-2", 10.0, 50.0, 1, 4, "default")],
    ),
    "sacct": (
        SACCT,
        [("train-7", 0.0, 3600.0, 2, 8, "vision"), ("prep-8", 120.0, 60.0, 1, 0, "vision")],
    ),
    "gangsched": (
        "name,at_s,runtime_s,pods,gpus,queue,user\na,5,10,2,4,red,eve\na,6,10,,,,\n",
        [("a", 0.0, 10.0, 2, 4, "red"), ("a-2", 1.0, 10.0, 1, 1, "default")],
    ),
}  # fmt: skip
GAVEL = "LM (batch size 5)\trun\t-n\t1\t1000\t30.0\t2\nLM (batch size 5)\tr\t-\t1\t10\t0\t2\n"
THROUGHPUTS = """{"v100": {"('LM (batch size 5)', 2)": {"null": 4.0}}}"""
"""Beside a trace of Gavel: simulation_throughputs.json."""
